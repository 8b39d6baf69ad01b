package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/id"
)

// badAmounts are what no entrance for money takes, as JSON.
var badAmounts = map[string]string{
	"more decimals than we count": `"1.0000000001"`,
	"negative":                    `"-5"`,
	"huge":                        `"9223372036.854775807"`,
	"past 64 bits":                `"99999999999999999999"`,
	"an exponent":                 `"1e3"`,
	"a separator":                 `"1,000"`,
	"another currency":            `"5 EUR"`,
	"not a number":                `"NaN"`,
	"a float":                     `25.5`,
}

// TestBadAmounts puts each bad amount in each place that takes one: it is refused beside its field and nothing changes.
func TestBadAmounts(t *testing.T) {
	t.Parallel()
	w := open(t)
	boss := w.boss("ann")
	host := w.sell(boss, 1, "2.00")
	w.fund(boss, "30.00")
	state := func() string {
		out := ""
		for _, path := range []string{"billing/balance", "billing/topups", "billing/refunds", "billing/auto-topup", "budgets",
			"clusters", "hosts/" + host.String(), "admin/promo-codes", "admin/books"} {
			out += w.want(w.call(boss, "GET", "/api/v1/"+path, nil), 200, "").raw
		}
		return out
	}
	before := state()
	charge := id.New[id.LedgerTx]().String()
	for _, c := range []struct {
		method, path, body string // %s stands for the amount
		field              string
		also               string // bad here too, space-separated
	}{
		{"POST", "billing/topups", `{"amount":%s}`, "amount", `"0" "1.001" ""`},
		{"POST", "billing/refunds", `{"amount":%s}`, "amount", `"0" "1.001" ""`},
		{"PATCH", "billing/auto-topup", `{"enabled":true,"threshold":%s,"amount":"50","daily_cap":"200"}`, "threshold",
			`"0" ""`},
		{"PATCH", "billing/auto-topup", `{"enabled":true,"threshold":"20","amount":%s,"daily_cap":"200"}`, "amount",
			`"0" "50.001" ""`},
		{"PATCH", "billing/auto-topup", `{"enabled":true,"threshold":"20","amount":"50","daily_cap":%s}`, "daily_cap",
			`"0" "49.99" ""`},
		{"POST", "budgets", `{"cap":%s}`, "cap", `""`},
		{"POST", "budgets", `{"max_price_per_hour":%s}`, "max_price_per_hour", `"0" "0.0000001" "1000000.01" ""`},
		{"POST", "quotes", `{"image":"x/y:1","budget":%s}`, "budget", `"0" ""`},
		{"POST", "clusters", `{"image":"x/y:1","budget":%s}`, "budget", `"0" ""`},
		{"POST", "clusters", `{"image":"x/y:1","max_price_per_hour":%s}`, "max_price_per_hour",
			`"0" "0.0000001" "1000000.01" ""`},
		{"PATCH", "hosts/" + host.String(), `{"price_per_gpu_hour":%s}`, "price_per_gpu_hour",
			`"0" "0.0000001" "0.0009" "10000.01"`},
		{"POST", "admin/promo-codes", `{"code":"welcome-2027","max_uses":1,"amount":%s,"reason":"a test"}`, "amount",
			`"0" "1.001" "1000.01" ""`},
		{"POST", "admin/transactions/" + charge + "/compensate", `{"reason":"x","amount":%s}`, "amount", `"0"`},
		{"POST", "admin/payouts/" + id.New[id.Payout]().String() + "/reverse", `{"reason":"x","amount":%s}`, "amount", `"0"`},
		{"PATCH", "admin/postpaid/" + id.New[id.Org]().String(), `{"on":true,"reason":"x","credit_limit":%s}`, "credit_limit",
			`"0" "0.99" "10000000.01" ""`},
		{"PATCH", "admin/operators/" + id.New[id.Org]().String(), `{"reason":"x","fee_ppm":%s}`, "fee_ppm", `-1 1000001`},
	} {
		amounts := strings.Fields(c.also)
		for name, a := range badAmounts {
			if name == "huge" && strings.HasPrefix(c.path, "admin/") && c.field == "amount" && c.path != "admin/promo-codes" {
				continue // a number like others: the charge or payout bounds it, which has a test of its own
			}
			amounts = append(amounts, a)
		}
		for _, a := range amounts {
			r := w.call(boss, c.method, "/api/v1/"+c.path, fmt.Sprintf(c.body, a))
			found := false
			for _, e := range r.list("errors") {
				found = found || e.(map[string]any)["location"] == c.field
			}
			if r.StatusCode != 422 || !found {
				t.Errorf("%s %s with %s of %s: %d %s", c.method, c.path, c.field, a, r.StatusCode, r.raw)
			}
		}
	}
	if after := state(); after != before {
		t.Errorf("something changed:\n%s\n%s", before, after)
	}
}
