package web_test

import (
	"net/url"
	"strings"
	"testing"
)

// The tax page shows the tax charged by country and records payments to tax offices.
func TestAdminTax_Remit(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	b.exec(`INSERT INTO tax_entry (key, org_id, kind, ref, country, vat_id, reason, name, ppm, net, tax, currency,
		created_at)
		VALUES ('old', $1, 'topup', '', 'DE', '', 'home', 'VAT', 190000, 100000000000, 19000000000, 'USD',
		'2025-02-03')`, b.org())
	for path, want := range map[string]string{
		"/admin/tax":                "No tax was charged",
		"/admin/tax?period=2025-Q1": "Left",
		"/admin/tax?period=x":       "is a year, quarter or month",
	} {
		_, doc := b.get(path)
		sound(t, path, doc)
		if got := doc.Find("main").Text(); !strings.Contains(got, want) {
			t.Errorf("%s: %q", path, got)
		}
	}
	_, doc := b.get("/admin/tax?period=2025-Q1")
	if got := doc.Find("#period option[selected]").Text(); got != "2025-Q1" {
		t.Errorf("the period is chosen as %q", got)
	}
	if n := doc.Find("#period optgroup option").Length(); n != 8+12+3 {
		t.Errorf("%d periods to choose from", n)
	}
	form := url.Values{"amount": {"19.01"}, "reason": {"transfer 17"}}
	for _, name := range []string{"period", "country", "once"} {
		form.Set(name, doc.Find("#remit form input[name="+name+"]").AttrOr("value", ""))
	}
	if _, doc := b.post("/admin/tax", form); !strings.Contains(doc.Find("#remit").Text(), "at most 19.00") {
		t.Errorf("too much: %q", doc.Find("#remit").Text())
	}
	form.Set("amount", "19.00")
	if _, doc = b.post("/admin/tax", form); !strings.Contains(doc.Find("main").Text(), "Booked") ||
		doc.Find("#remit form").Length() != 0 {
		t.Errorf("%q", doc.Find("main").Text())
	}
}
