package e2e

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// TestTheMarketInABrowser unfolds the facts of an offer, opens the list of fields, and chooses hosts to rent together.
func TestTheMarketInABrowser(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	b := p.browse(t)
	b.open("/offers")
	const first = "a[data-unfold]"
	b.do("unfold the first offer", chromedp.Click(chromedp.CSS(first)))
	b.reads("tr.facts", "NVIDIA driver")
	b.see("tr.facts svg.util")
	b.do("fold it again", chromedp.Click(chromedp.CSS(first)), chromedp.WaitNotVisible(chromedp.CSS("tr.facts")))
	b.do("unfold it again", chromedp.Click(chromedp.CSS(first)), chromedp.WaitVisible(chromedp.CSS("tr.facts")))

	b.accessible("/offers with an unfolded row")
	b.shot("offer-facts")

	b.do("open the fields", chromedp.Click(chromedp.CSS(`[popovertarget="fields"]`)),
		chromedp.WaitVisible(chromedp.CSS("#fields")))
	b.do("add an example", chromedp.Click(chromedp.CSS(`#fields a[href*="vram_gb"]`)))
	b.reads(".chip", "vram_gb")

	choose := func() {
		b.open("/offers")
		b.do("choose a host", chromedp.Click(chromedp.CSS("tbody tr:nth-child(1) input[name=offer]")))
		b.do("choose another", chromedp.Click(chromedp.CSS("tbody tr:nth-child(2) input[name=offer]")))
	}
	choose()
	b.submit(".choosebar button:not([formaction])")
	b.reads("h1", "Compare offers")
	b.accessible("/offers/compare")
	b.shot("compare")
	choose()
	b.submit(`.choosebar [formaction="/offers/choose"]`)
	b.reads(".chip", "host_name")
	b.see(`#nodes[value="2"]`)
}

// accessible checks the open page in every look.
func (b *tab) accessible(what string) {
	b.t.Helper()
	b.prepare(what)
	for _, l := range looks {
		b.check("", what, l)
	}
	b.do("the usual width", chromedp.EmulateViewport(1440, 900))
}
