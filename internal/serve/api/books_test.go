package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/money"
)

// An accountant reads a period as a report, as a journal and by organisation, and each as a file. Two admins move what
// was withheld.
func TestLedgerPeriod(t *testing.T) {
	t.Parallel()
	w := open(t)
	ada, boss, other := w.user("ada"), w.boss("root"), w.boss("second")
	const why = `{"reason":"a test"}`
	w.withhold(5 * money.Unit)
	w.fund(ada, "10.00")
	w.earn(w.orgOf(ada), w.orgOf(other), "earned", 2*money.Unit)
	id := strings.TrimPrefix(w.proposal("third"), "/admin/books/proposals/")
	own := w.want(w.call(boss, "POST", "/api/v1/admin/books/proposals", proposed), 201, "").text("id")
	w.want(w.call(boss, "POST", "/api/v1/admin/books/proposals/"+own+"/approve", why), 403, "forbidden")
	w.want(w.call(boss, "POST", "/api/v1/admin/books/proposals/"+own+"/refuse", why), 200, "")
	r := w.want(w.call(boss, "POST", "/api/v1/admin/books/proposals/"+id+"/approve", why), 200, "")
	if r.text("state") != "booked" {
		t.Error(r.raw)
	}
	w.want(w.call(boss, "POST", "/api/v1/admin/books/proposals/"+id+"/approve", why), 409, "conflict")
	if r := w.call(boss, "GET", "/api/v1/admin/books/proposals?open=true", nil); strings.Contains(r.raw, id) {
		t.Error("decided and open:", r.raw)
	}
	if _, err := ledger.Link(t.Context(), w.db, 0); err != nil {
		t.Fatal(err)
	}
	// Yesterday to tomorrow: midnight may pass meanwhile.
	now := time.Now().UTC()
	days := "from=" + now.AddDate(0, 0, -1).Format(time.DateOnly) + "&to=" + now.AddDate(0, 0, 1).Format(time.DateOnly)
	at := "at=" + now.AddDate(0, 0, 1).Format(time.DateOnly)
	for path, want := range map[string]string{
		"report?" + days:                       `"kind":"breakage","currency":"USD","opening":"0.000000000"`,
		"balances.csv?" + days:                 ",breakage,USD,0.000000000,0.000000000,5.000000000,5.000000000",
		"flows.csv?" + days:                    ",admin_entry,earnings_withheld,breakage,1,5.000000000,USD",
		"turnover.csv?" + days:                 ",topup,2.000000000,0.000000000,0.000000000,2.000000000,0.000000000,USD",
		"journal?kind=admin_entry&" + days:     `"ref":"` + id + `"`,
		"journal.csv?kind=admin_entry&" + days: ",admin_entry,earnings_withheld,,breakage,,5.000000000,USD," + id,
		"orgs?" + at:                           `"payable":"2.000000000"`,
		"orgs.csv?" + at:                       ",0.000000000,0.000000000,2.000000000,",
	} {
		if r := w.want(w.call(boss, "GET", "/api/v1/admin/books/"+path, nil), 200, ""); !strings.Contains(r.raw, want) {
			t.Errorf("%s has no %s: %s", path, want, r.raw)
		}
		w.want(w.call(ada, "GET", "/api/v1/admin/books/"+path, nil), 403, "forbidden")
	}
	for _, bad := range []string{"report?from=2026-11-02&to=2026-11-01", "journal.csv?from=x&to=2026-11-01", "orgs?at=x",
		"journal?after=x&" + days} {
		w.want(w.call(boss, "GET", "/api/v1/admin/books/"+bad, nil), 422, "validation_failed")
	}
}
