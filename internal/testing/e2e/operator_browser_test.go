package e2e

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
)

// TestAnOperatorsJourneyInABrowser walks from signing up to a host that is on the market, with a real agent at the
// other end, and out again.
func TestAnOperatorsJourneyInABrowser(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	b := p.browse(t)
	b.open("/signup")
	b.submit("form button[type=submit]", "#name", "garage", "#email", uuid.NewString()+"@muster.example", "#password",
		"a long enough sentence")
	b.reads(".who", "garage")

	b.open("/hosts")
	b.submit("#enroll button[type=submit]", "#name", "attic", "#region", "Not a region")
	b.see("#region-e")
	b.submit("#enroll button[type=submit]", "#name", "attic", "#region", "eu-north")
	b.reads("#enroll-progress", "Waiting for the host")
	b.shot("enrol")
	b.reads("#enroll-command", "mst_enroll_")
	command := b.text("#enroll-command")
	at := strings.Index(command, "mst_enroll_")
	token, _, _ := strings.Cut(command[at:], "'")
	token = strings.Trim(strings.Fields(token)[0], `"'`)

	h := p.newHost(t, "attic", "NVIDIA L40S", 2) // a model of this test alone
	if out, err := h.enroll(token); err != nil {
		t.Fatalf("enrol: %v\n%s", err, out)
	}
	b.reads("#enroll-progress", "Token used") // the page asks by itself
	h.start(t)
	b.reads("#enroll-progress", "2 × L40S")
	b.reads("#enroll-progress", "until you set one")
	b.shot("enrolled")
	b.submit("#enroll-progress a.primary")
	b.reads("h1", "attic")
	b.submit("form[action$='/terms'] button[type=submit]", "#price_per_gpu_hour", "12 pounds")
	b.see("#price_per_gpu_hour-e")
	b.submit("form[action$='/terms'] button[type=submit]", "#price_per_gpu_hour", "7.77", "#min_gpus", "1")
	b.do("the price is taken", chromedp.WaitNotPresent(chromedp.CSS("#price_per_gpu_hour-e")))

	eventually(t, "the host is on the market", func() bool {
		b.open("/offers?q=host_name%3Dattic")
		return strings.Contains(b.text("table"), "7.77")
	})
	b.shot("listed")

	b.open("/hosts")
	b.reads("#fleet", "2 free, on 1 host")
	b.accessible("/hosts")
	b.shot("fleet")
	b.submit("a[href^='/hosts/host_']")
	b.reads("h1", "attic")
	b.accessible("the page of a host")
	b.shot("host")
	b.submit("form:has(input[value=drain]) button")
	b.reads(".idline", "Draining")
	eventually(t, "the host is off the market", func() bool {
		b.open("/offers?q=host_name%3Dattic")
		return strings.Contains(b.text(".empty"), "No offer matches")
	})
}
