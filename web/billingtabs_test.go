package web_test

import (
	"strings"
	"testing"
)

// Billing has tabs, each with its own parts; amounts have four decimals, and the exact one on hover.
func TestBillingHasTabs(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.charge()
	for path, want := range map[string]string{
		"/billing":              "#statement, #topup",
		"/billing?tab=payments": "#topup, #auto, #refund",
		"/billing?tab=budgets":  "#budgets",
		"/billing?tab=wallet":   "#transactions",
	} {
		_, doc := b.get(path)
		sound(t, path, doc)
		if n := doc.Find(want).Length(); n != len(strings.Split(want, ",")) {
			t.Errorf("%s: %d of %s", path, n, want)
		}
		if path != "/billing" && doc.Find(`.seg a[aria-current]`).AttrOr("href", "") != path {
			t.Errorf("%s is not the current tab", path)
		}
	}
	_, doc := b.get("/billing?tab=wallet")
	amount := doc.Find("#transactions .money").First()
	if s := strings.TrimSpace(amount.Text()); !strings.HasSuffix(s, ".0000") || amount.AttrOr("title", "") == "" ||
		len(amount.AttrOr("title", "")) != len(s)+5-strings.Count(s, "\u2212")*2 {
		t.Errorf("%q, exact %q", s, amount.AttrOr("title", ""))
	}
	if _, doc := b.get("/billing/statement?by=person"); doc.Find(`.seg a[aria-current]`).Text() != "Person" {
		t.Errorf("%q", doc.Find(".seg").Text())
	}
}
