package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestTheTimeZoneOnThePage(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	_, page := b.get("/account")
	if page.Find("#zone-name option[selected]").AttrOr("value", "") != "UTC" ||
		page.Find(`#zone-name optgroup[label=Europe] option[value="Europe/Berlin"]`).Text() != "Europe/Berlin" {
		t.Error(page.Find("#zone").Text())
	}
	res, page := b.post("/account/zone", url.Values{"zone": {"Mars/Phobos"}})
	if res.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(page.Find("#zone-name-e").Text(),
		"Europe/Berlin") || page.Find("#zone-name option[selected]").AttrOr("value", "") != "UTC" {
		t.Error(res.Status, page.Find("#zone").Text())
	}
	_, page = b.post("/account/zone", url.Values{"zone": {"America/Argentina/Buenos_Aires"}})
	if got := page.Find("#zone-name option[selected]"); got.AttrOr("value", "") != "America/Argentina/Buenos_Aires" ||
		got.Text() != "America/Argentina/Buenos Aires" {
		t.Error(page.Find("#zone").Text())
	}
	for _, path := range []string{"/billing/statement", "/billing/invoices", "/hosts/statement"} {
		if _, page := b.get(path); !strings.Contains(page.Find(".lede").Text(), "America/Argentina/Buenos_Aires") {
			t.Errorf("%s: %s", path, page.Find(".lede").Text())
		}
	}
}
