package web_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/testing/fleettest"
)

// The fleet's totals stand above the list of hosts.
func TestHosts_FleetTotals(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	if _, doc := b.get("/hosts"); doc.Find("#fleet").Length() != 0 {
		t.Error("no host, and totals")
	}
	b.sell(2)
	b.sell(4)
	_, doc := b.get("/hosts")
	if text := doc.Find("#fleet").Text(); !strings.Contains(text, "0of 6") ||
		!strings.Contains(text, "6 free, on 2 hosts") ||
		!strings.Contains(text, "10.20 with all free GPUs rented") { // 85 % of 6 × 2.00
		t.Errorf("the totals are %s", text)
	}
}

// Where a price is set, the page says what others charge; the longest rental is in hours; actions say what they do.
func TestHost_PriceGuideHoursAndActions(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(2)
	other, _ := fleettest.Org(t, b.db)
	b.exec("UPDATE host SET org_id = $1", other)
	b.exec("UPDATE offer SET price = 1500000")
	b.exec("UPDATE host SET name = 'theirs'")
	b.sell(4)
	_, doc := b.get("/hosts")
	page := doc.Find(`main a[href^="/hosts/host_"]`).AttrOr("href", "")
	b.until("the other host's price", func() bool {
		_, doc = b.get(page)
		return strings.Contains(doc.Find(".guide").Text(), "half 1.50 or less")
	})
	if text := doc.Find(".guide").Text(); !strings.Contains(text, "2 GPUs of other operators on 1 host") ||
		!strings.Contains(text, "100 % of them are cheaper than yours") || doc.Find(".guide rect.own").Length() != 1 {
		t.Errorf("the guide is %s", text)
	}
	if text := doc.Find("#actions").Text(); !strings.Contains(text, "No new rentals start") {
		t.Errorf("the actions are %s", text)
	}
	terms := url.Values{"gpu_model": {"NVIDIA H100 80GB HBM3"}, "price_per_gpu_hour": {"2.00"}, "min_gpus": {"1"},
		"max_hours": {"1.5"}}
	_, doc = b.post(page+"/terms", terms)
	if got := doc.Find("#max_hours").AttrOr("value", ""); got != "1.5" {
		t.Errorf("the longest rental is %q hours", got)
	}
	terms.Set("max_hours", "two")
	if _, doc = b.post(page+"/terms", terms); doc.Find("#max_hours-e").Length() != 1 ||
		doc.Find("#max_hours").AttrOr("value", "") != "two" {
		t.Errorf("a mistake is not shown beside the field: %s", doc.Find("main").Text())
	}
	terms.Set("max_hours", "")
	if _, doc = b.post(page+"/terms", terms); doc.Find("#max_hours").AttrOr("value", "none") != "" {
		t.Errorf("without a limit the field shows %q", doc.Find("#max_hours").AttrOr("value", "none"))
	}
}
