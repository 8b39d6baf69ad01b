package api_test

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// All documents of an organisation are in one list, page by page; each is read by its number with its content and with
// what corrects it; platform operators read those of all.
func TestTheRegisterOfDocuments(t *testing.T) {
	t.Parallel()
	w := open(t)
	ada, eve := w.user("ada"), w.user("eve")
	year := strconv.Itoa(time.Now().UTC().Year())
	for _, who := range []string{ada, eve} {
		w.want(w.call(who, "POST", "/api/v1/billing/topups", `{"amount":"10"}`), 201, "")
	}
	w.want(w.call(ada, "POST", "/api/v1/billing/refunds", `{"amount":"5"}`), 201, "")
	receipt, other, credit := "R-"+year+"-000001", "R-"+year+"-000002", "C-"+year+"-000001"

	r := w.want(w.call(ada, "GET", "/api/v1/documents?limit=1", nil), 200, "")
	if r.json["next"] != credit || !strings.Contains(r.raw, `"corrects":"`+receipt+`"`) {
		t.Error(r.raw)
	}
	r = w.want(w.call(ada, "GET", "/api/v1/documents?limit=1&after="+credit, nil), 200, "")
	if r.json["next"] != nil || !strings.Contains(r.raw, `"number":"`+receipt+`"`) ||
		!strings.Contains(r.raw, `"total":"10.000000000"`) || strings.Contains(r.raw, other) {
		t.Error(r.raw)
	}
	if r := w.want(w.call(ada, "GET", "/api/v1/documents?series=self_billing&year="+year, nil), 200,
		""); r.raw != "{\"items\":[],\"next\":null}\n" && !strings.Contains(r.raw, `"items":[]`) {
		t.Error(r.raw)
	}
	for _, bad := range []string{"series=x", "year=1", "after=x", "after=" + other} { // another's number is no cursor
		w.want(w.call(ada, "GET", "/api/v1/documents?"+bad, nil), 422, "validation_failed")
	}
	r = w.want(w.call(ada, "GET", "/api/v1/documents/"+receipt, nil), 200, "")
	if !strings.Contains(r.raw, `"corrected_by":["`+credit+`"]`) || r.json["receipt"] == nil ||
		r.json["credit_note"] != nil {
		t.Error(r.raw)
	}
	if r = w.want(w.call(ada, "GET", "/api/v1/documents/"+credit, nil), 200, ""); r.json["credit_note"] == nil ||
		r.json["receipt"] != nil {
		t.Error(r.raw)
	}
	w.want(w.call(ada, "GET", "/api/v1/documents/"+other, nil), 404, "not_found")
	w.want(w.call(ada, "GET", "/api/v1/documents/R-2026-1", nil), 404, "not_found")
	w.want(w.call(w.token(ada, "hosts"), "GET", "/api/v1/documents", nil), 403, "forbidden")
	w.want(w.call(ada, "GET", "/api/v1/admin/documents", nil), 403, "forbidden")
	w.want(w.call(ada, "GET", "/api/v1/admin/documents/"+receipt, nil), 403, "forbidden")

	staff := w.boss("root")
	if r := w.want(w.call(staff, "GET", "/api/v1/admin/documents?series=receipt", nil), 200, ""); !strings.Contains(r.raw,
		receipt) || !strings.Contains(r.raw, other) {
		t.Error(r.raw)
	}
	w.want(w.call(staff, "GET", "/api/v1/admin/documents/"+other, nil), 200, "")
	w.want(w.call(staff, "GET", "/api/v1/admin/documents?org=x", nil), 422, "validation_failed")
}
