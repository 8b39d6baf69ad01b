package web_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
)

// Whatever bad amount is typed, in whatever form: the form comes again with a message, and nothing is written.
func TestBadAmountsInForms(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	_, _, charge := b.charge()
	written := func() (n int) {
		err := b.db.Pool.QueryRow(context.Background(), `SELECT (SELECT count(*) FROM topup) + (SELECT count(*) FROM
			ledger_tx)
			+ (SELECT count(*) FROM budget) + (SELECT count(*) FROM offer_price) + (SELECT count(*) FROM quote) + (SELECT
			count(*) FROM auto_topup) + (SELECT count(*) FROM refund)`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	b.sell(2)
	_, page := b.get("/hosts")
	host, ok := page.Find(`main a[href^="/hosts/host_"]`).Attr("href")
	if !ok {
		t.Fatal(page.Find("main").Text())
	}
	_, page = b.get(host)
	model := page.Find("form[action$='/terms'] input[name=gpu_model]").AttrOr("value", "")
	before := written()
	for _, c := range []struct {
		path, field string
		rest        url.Values
	}{
		{"/billing/topups", "amount", url.Values{}},
		{"/billing/refunds", "refund_amount", url.Values{}},
		{"/billing/auto-topup", "threshold", url.Values{"enabled": {"yes"}, "auto_amount": {"50"}, "daily_cap": {"200"}}},
		{"/billing/auto-topup", "auto_amount", url.Values{"enabled": {"yes"}, "threshold": {"20"}, "daily_cap": {"200"}}},
		{"/billing/auto-topup", "daily_cap", url.Values{"enabled": {"yes"}, "threshold": {"20"}, "auto_amount": {"50"}}},
		{"/billing/budgets", "cap", url.Values{}},
		{"/billing/budgets", "max_price_per_hour", url.Values{}},
		{host + "/terms", "price_per_gpu_hour", url.Values{"gpu_model": {model}, "min_gpus": {"1"}, "max_hours": {""}}},
		{"/quotes", "budget", url.Values{"nodes": {"1"}, "gpus": {"1"}, "image": {"x/y:1"}}},
		{"/admin/books/compensations", "amount", url.Values{"charge": {charge.ID.String()}, "reason": {"an outage"}}},
	} {
		for _, text := range []string{"-5", "1.0000000001", "9223372036.854775807", "99999999999999999999", "1e3", "1,000",
			"5 EUR", "€5", "NaN"} {
			c.rest.Set(c.field, text)
			res, page := b.post(c.path, c.rest)
			if res.StatusCode != http.StatusUnprocessableEntity || page.Find("main .err").Length() == 0 {
				t.Errorf("%s with %s of %q: %s, %d messages", c.path, c.field, text, res.Status, page.Find("main .err").Length())
			}
		}
	}
	if after := written(); after != before {
		t.Errorf("%d rows were written", after-before)
	}
}
