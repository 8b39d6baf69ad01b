package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/id"
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
	if r := price("10"); r.text("total") != "10.000000000" || r.text("tax.percent") != "0" ||
		r.text("tax.reason") != "untold" || r.text("tax.note") == "" {
		t.Errorf("%s", r.raw)
	}
	for _, bad := range []string{"x", "0.5", "-1", "1.001", ""} {
		w.want(w.call(ada, "GET", "/api/v1/billing/price?amount="+bad, nil), 422, "validation_failed")
	}
	w.want(w.call(ada, "PUT", "/api/v1/org/legal", `{"name":"Ada","address":["y"],"country":"DE"}`), 200, "")
	if r := price("10"); r.text("total") != "11.900000000" || r.text("tax.amount") != "1.900000000" ||
		r.text("tax.percent") != "19" || r.text("tax.name") != "VAT" || r.text("tax.country") != "DE" {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call(ada, "POST", "/api/v1/billing/topups", `{"amount":"10","total":"10"}`), 409, "conflict")
	w.want(w.call(ada, "POST", "/api/v1/billing/topups", `{"amount":"10","total":"-11.9"}`), 422, "validation_failed")
	r := w.want(w.call(ada, "POST", "/api/v1/billing/topups", `{"amount":"10","total":"11.9"}`), 201, "")
	if r.text("amount") != "10.000000000" || r.text("total") != "11.900000000" || r.text("tax.amount") != "1.900000000" ||
		r.text("state") != "succeeded" {
		t.Errorf("%s", r.raw)
	}
	receipt := "/api/v1/billing/topups/" + r.text("id") + "/receipt"
	w.want(w.call(w.user("eve"), "GET", receipt, nil), 404, "not_found")
	if r := w.want(w.call(ada, "GET", receipt, nil), 200, ""); r.text("total") != "11.900000000" ||
		r.text("tax.amount") != "1.900000000" || r.text("customer.name") != "Ada" || r.text("left") != "11.900000000" {
		t.Errorf("%s", r.raw)
	}
	if r := w.want(w.call(ada, "GET", "/api/v1/billing/balance", nil), 200, ""); r.text("available") != "10.000000000" {
		t.Errorf("%s", r.raw)
	}
	r = w.want(w.call(ada, "POST", "/api/v1/billing/refunds", `{"amount":"5"}`), 201, "")
	if !strings.Contains(r.raw, `"tax":"0.950000000","total":"5.950000000"`) {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call(ada, "PUT", "/api/v1/org/legal",
		`{"name":"Ada","address":["y"],"country":"FR","vat_id":"FR40303265045"}`), 200, "")
	if r := price("10"); r.text("total") != "10.000000000" || r.text("tax.reason") != "reverse_charge" ||
		!strings.Contains(r.text("tax.note"), "Reverse charge") {
		t.Errorf("%s", r.raw)
	}
	// The platform's operators have it all by country.
	boss, period := w.boss("ann"), time.Now().UTC().Format("2006")
	w.want(w.call(ada, "GET", "/api/v1/admin/tax?period="+period, nil), 403, "forbidden")
	r = w.want(w.call(boss, "GET", "/api/v1/admin/tax?period="+period, nil), 200, "")
	if r.text("tax") != "0.950000000" || r.text("book") != r.text("payable") ||
		!strings.Contains(r.raw, `"country":"DE"`) {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call(boss, "GET", "/api/v1/admin/tax?period=2026-13", nil), 422, "validation_failed")
	if r = w.call(boss, "GET", "/api/v1/admin/tax.csv?period="+period, nil); !strings.Contains(r.raw,
		"DE,destination,VAT,19") {
		t.Errorf("%s %s", r.Status, r.raw)
	}
}

// A platform operator books that a tax office was paid; no one else, and never more than is owed.
func TestRemitTax(t *testing.T) {
	t.Parallel()
	w := open(t)
	renter, boss := w.user("ada"), w.boss("ann")
	org := w.want(w.call(renter, "GET", "/api/v1/me", nil), 200, "").text("org.id")
	of, err := id.Parse[id.Org](org)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.Pool.Exec(t.Context(), `INSERT INTO tax_entry (key, org_id, kind, ref, country, vat_id, reason,
		name, ppm, net, tax, currency, created_at)
		VALUES ('old', $1, 'topup', '', 'DE', '', 'home', 'VAT', 190000, 100000000000, 19000000000, 'USD',
		'2025-02-03')`, of); err != nil {
		t.Fatal(err)
	}
	path, body := "/api/v1/admin/tax/remittances",
		`{"period":"2025-Q1","country":"DE","amount":"10.00","reason":"transfer 17"}`
	w.want(w.call(renter, "POST", path, body), 403, "forbidden")
	for _, bad := range []string{`{"period":"2025-Q1","country":"DE","amount":"ten","reason":"x"}`,
		`{"period":"2025-Q1","country":"DE","amount":"19.01","reason":"x"}`,
		`{"period":"2025-Q1","country":"DE","amount":"0.001","reason":"x"}`,
		`{"period":"2025-Q1","country":"DE","amount":"1.00","reason":""}`,
		`{"period":"2025-Q9","country":"DE","amount":"1.00","reason":"x"}`} {
		w.want(w.call(boss, "POST", path, bad), 422, "validation_failed")
	}
	if r := w.want(w.call(boss, "POST", path, body), 201, ""); !strings.Contains(r.raw,
		`"remitted":"10.000000000","left":"9.000000000"`) {
		t.Error(r.raw)
	}
	if r := w.want(w.call(boss, "GET", "/api/v1/admin/tax?period=2025", nil), 200, ""); !strings.Contains(r.raw,
		`"remitted":"10.000000000"`) {
		t.Error(r.raw)
	}
}
