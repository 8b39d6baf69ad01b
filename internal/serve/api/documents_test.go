package api_test

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// A refund's credit note is listed, shown by its number and in the table of its year, to its own organisation only.
func TestCreditNotesAreListed(t *testing.T) {
	t.Parallel()
	w := open(t)
	ada := w.user("ada")
	w.want(w.call(ada, "POST", "/api/v1/billing/topups", `{"amount":"10"}`), 201, "")
	w.want(w.call(ada, "POST", "/api/v1/billing/refunds", `{"amount":"5"}`), 201, "")
	number := "C-" + strconv.Itoa(time.Now().UTC().Year()) + "-000001"
	year := "?year=" + number[2:6]
	for _, path := range []string{"credit-notes" + year, "credit-notes.csv" + year, "credit-notes/" + number} {
		if r := w.want(w.call(ada, "GET", "/api/v1/billing/"+path, nil), 200, ""); !strings.Contains(r.raw, number) ||
			!strings.Contains(r.raw, "5.000000000") {
			t.Errorf("%s: %s", path, r.raw)
		}
	}
	eve := w.user("eve")
	w.want(w.call(eve, "GET", "/api/v1/billing/credit-notes/"+number, nil), 404, "not_found")
	if r := w.want(w.call(eve, "GET", "/api/v1/billing/credit-notes"+year, nil), 200, ""); strings.Contains(r.raw,
		number) {
		t.Error(r.raw)
	}
	w.want(w.call(ada, "GET", "/api/v1/billing/credit-notes?year=x", nil), 422, "validation_failed")
	w.want(w.call(ada, "GET", "/api/v1/payouts/documents"+year, nil), 200, "")
	w.want(w.call(ada, "GET", "/api/v1/payouts/documents.csv"+year, nil), 200, "")
	w.want(w.call(ada, "GET", "/api/v1/payouts/documents/S-2026-000001", nil), 404, "not_found")
}

// A token cannot delete its user without the password; the deletion says what is in the way.
func TestAUserIsDeletedByPassword(t *testing.T) {
	t.Parallel()
	w := open(t)
	ada := w.user("ada")
	w.want(w.call(ada, "GET", "/api/v1/me/export", nil), 200, "")
	w.want(w.call(ada, "GET", "/api/v1/me/deletion", nil), 200, "")
	w.want(w.call(ada, "PUT", "/api/v1/me/deletion", `{"password":"wrong","confirm":"x"}`), 422, "validation_failed")
	w.want(w.call(ada, "GET", "/api/v1/me", nil), 200, "")
}
