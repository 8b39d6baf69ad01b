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

	b.do("open the fields", chromedp.Click(chromedp.CSS(`[popovertarget="fields"]`)),
		chromedp.WaitVisible(chromedp.CSS("#fields")))
	b.do("add an example", chromedp.Click(chromedp.CSS(`#fields a[href*="vram_gb"]`)))
	b.reads(".chip", "vram_gb")

	b.open("/offers")
	b.do("choose a host", chromedp.Click(chromedp.CSS("tbody tr:nth-child(1) input[name=offer]")))
	b.do("choose another", chromedp.Click(chromedp.CSS("tbody tr:nth-child(2) input[name=offer]")))
	b.submit(`.choosebar [formaction="/offers/choose"]`)
	b.reads(".chip", "host_name")
	b.see(`#nodes[value="2"]`)
}
