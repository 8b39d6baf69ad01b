package api_test

import (
	"strings"
	"testing"
	"time"
)

func TestLegalDetailsAndInvoicesOverREST(t *testing.T) {
	t.Parallel()
	w := open(t)
	ada := w.user("ada")
	reader := w.token(ada, "read")
	const path = "/api/v1/org/legal"
	if r := w.want(w.call(ada, "GET", path, nil), 200, ""); r.text("name") != "" ||
		!strings.Contains(r.raw, `"changed_at":null`) {
		t.Errorf("%s", r.raw)
	}
	const legal = `{"name":"Ada GmbH","address":["Unter den Linden 1","10117 Berlin"],"country":"de","vat_id":"DE 123456788"}`
	w.want(w.call(reader, "PUT", path, legal), 403, "forbidden")
	if r := w.want(w.call(ada, "PUT", path, strings.Replace(legal, "DE 123456788", "DE12", 1)), 422,
		"validation_failed"); !strings.Contains(r.raw, "DE123456788") {
		t.Errorf("%s", r.raw)
	}
	w.want(w.call(ada, "PUT", path, `{"name":"x","address":["y"],"country":"ZZ"}`), 422, "validation_failed")
	w.want(w.call(ada, "PUT", path, legal), 200, "")
	if r := w.want(w.call(reader, "GET", path, nil), 200, ""); r.text("name") != "Ada GmbH" || r.text("country") != "DE" ||
		r.text("vat_id") != "DE123456788" || len(r.list("address")) != 2 {
		t.Errorf("%s", r.raw)
	}

	// Two months back is over for certain, whatever the moment of the test.
	month := time.Now().UTC().AddDate(0, 0, -62).Format("2006-01")
	r := w.want(w.call(reader, "GET", "/api/v1/billing/invoices/"+month, nil), 200, "")
	if r.text("month") != month || r.text("customer.name") != "Ada GmbH" || r.text("total") != "0.000000000" ||
		!strings.Contains(r.raw, `"final":true`) {
		t.Errorf("%s", r.raw)
	}
	for _, bad := range []string{"2999-01", "1999-12", "2026-13", "x", "2026-1"} {
		w.want(w.call(ada, "GET", "/api/v1/billing/invoices/"+bad, nil), 404, "not_found")
	}

	w.want(w.call(reader, "DELETE", path, nil), 403, "forbidden")
	w.want(w.call(ada, "DELETE", path, nil), 204, "")
	if r := w.want(w.call(reader, "GET", "/api/v1/billing/invoices/"+month, nil), 200, ""); strings.Contains(r.raw,
		"Ada GmbH") {
		t.Errorf("%s", r.raw)
	}
}
