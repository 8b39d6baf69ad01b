package api_test

import (
	"strings"
	"testing"
	"time"
)

// The payer knows what is charged before they pay, and is charged that or nothing.
func TestTaxOnATopUpOverREST(t *testing.T) {
	t.Parallel()
	w := open(t)
	ada := w.user("ada")
	price := func(amount string) reply {
		t.Helper()
		return w.want(w.call(ada, "GET", "/api/v1/billing/price?amount="+amount, nil), 200, "")
	}
	if r := price("10"); r.text("total") != "10.000000000" || r.text("tax.percent") != "0" || r.text("tax.reason") != "untold" || r.text("tax.note") == "" {
		t.Errorf("%s", r.raw)
	}
	for _, bad := range []string{"x", "0.5", "-1", "1.001", ""} {
		w.want(w.call(ada, "GET", "/api/v1/billing/price?amount="+bad, nil), 422, "validation_failed")
	}
	w.want(w.call(ada, "PUT", "/api/v1/org/legal", `{"name":"Ada","address":["y"],"country":"DE"}`), 200, "")
	if r := price("10"); r.text("total") != "11.900000000" || r.text("tax.amount") != "1.900000000" || r.text("tax.percent") != "19" || r.text("tax.name") != "VAT" || r.text("tax.country") != "DE" {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call(ada, "POST", "/api/v1/billing/topups", `{"amount":"10","total":"10"}`), 409, "conflict")
	w.want(w.call(ada, "POST", "/api/v1/billing/topups", `{"amount":"10","total":"-11.9"}`), 422, "validation_failed")
	r := w.want(w.call(ada, "POST", "/api/v1/billing/topups", `{"amount":"10","total":"11.9"}`), 201, "")
	if r.text("amount") != "10.000000000" || r.text("total") != "11.900000000" || r.text("tax.amount") != "1.900000000" || r.text("state") != "succeeded" {
		t.Errorf("%s", r.raw)
	}
	if r := w.want(w.call(ada, "GET", "/api/v1/billing/balance", nil), 200, ""); r.text("available") != "10.000000000" {
		t.Errorf("%s", r.raw)
	}
	r = w.want(w.call(ada, "POST", "/api/v1/billing/refunds", `{"amount":"5"}`), 201, "")
	if !strings.Contains(r.raw, `"tax":"0.950000000","total":"5.950000000"`) {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call(ada, "PUT", "/api/v1/org/legal", `{"name":"Ada","address":["y"],"country":"FR","vat_id":"FR12345678901"}`), 200, "")
	if r := price("10"); r.text("total") != "10.000000000" || r.text("tax.reason") != "reverse_charge" || !strings.Contains(r.text("tax.note"), "Reverse charge") {
		t.Errorf("%s", r.raw)
	}
	// The platform's operators have it all by country.
	boss, period := w.boss("ann"), time.Now().UTC().Format("2006")
	w.want(w.call(ada, "GET", "/api/v1/admin/tax?period="+period, nil), 403, "forbidden")
	r = w.want(w.call(boss, "GET", "/api/v1/admin/tax?period="+period, nil), 200, "")
	if r.text("tax") != "0.950000000" || r.text("book") != r.text("payable") || !strings.Contains(r.raw, `"country":"DE"`) {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call(boss, "GET", "/api/v1/admin/tax?period=2026-13", nil), 422, "validation_failed")
	if r = w.call(boss, "GET", "/api/v1/admin/tax.csv?period="+period, nil); !strings.Contains(r.raw, "DE,destination,VAT,19") {
		t.Errorf("%s %s", r.Status, r.raw)
	}
}
