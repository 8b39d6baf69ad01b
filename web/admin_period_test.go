package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
)

// Admins read the ledger of a period, and propose entries that they cannot approve themselves.
func TestAdminPeriod(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	b.charge()
	if _, err := ledger.Link(t.Context(), b.db, 0); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC() // midnight may pass meanwhile
	days := url.Values{"from": {now.AddDate(0, 0, -1).Format(time.DateOnly)},
		"to": {now.AddDate(0, 0, 1).Format(time.DateOnly)}}.Encode()
	for path, want := range map[string]string{
		"/admin/books/period?" + days:                       "platform_fee",
		"/admin/books/period":                               "Nothing was booked",
		"/admin/books/period?from=x&to=2026-11-01":          "must be a day",
		"/admin/books/journal?kind=usage&" + days:           "renter_hold",
		"/admin/books/journal?kind=none&" + days:            "Nothing was booked",
		"/admin/books/orgs?at=" + now.Format(time.DateOnly): "Deferred revenue",
		"/admin/books/orgs?at=x":                            "is not a day",
		"/admin/books/proposals":                            "No entry was proposed",
	} {
		_, doc := b.get(path)
		sound(t, path, doc)
		if got := doc.Find("main").Text(); !strings.Contains(got, want) {
			t.Errorf("%s has no %q: %q", path, want, got)
		}
	}
	_, doc := b.get("/admin/books/proposals")
	form := url.Values{"debit": {"earnings_withheld"}, "credit": {"bad_debt"}, "amount": {"0"}, "reason": {"refused"},
		"once": {doc.Find("#propose input[name=once]").AttrOr("value", "")}}
	if res, doc := b.post("/admin/books/proposals", form); res.StatusCode != http.StatusUnprocessableEntity ||
		!strings.Contains(doc.Find("#propose").Text(), "above zero") {
		t.Errorf("nothing was proposed: %d %s", res.StatusCode, doc.Find("#propose").Text())
	}
	form.Set("amount", "85.00")
	_, doc = b.post("/admin/books/proposals", form)
	sound(t, "a proposal", doc)
	row := doc.Find("#proposals tbody tr")
	if row.Length() != 1 || row.Find("button[value=approve]").Length() != 0 {
		t.Errorf("what an admin proposed: %s", row.Text())
	}
	decide := url.Values{"id": {row.AttrOr("id", "")}, "act": {"approve"}, "reason": {"mine"}}
	if res, doc := b.post("/admin/books/proposals/decide", decide); res.StatusCode == http.StatusOK ||
		!strings.Contains(doc.Find("main").Text(), "another member of the staff") {
		t.Errorf("an admin approved their own proposal: %d", res.StatusCode)
	}
	decide.Set("act", "refuse")
	if _, doc := b.post("/admin/books/proposals/decide", decide); !strings.Contains(doc.Find("#proposals").Text(),
		"refused") {
		t.Errorf("not refused: %s", doc.Find("#proposals").Text())
	}
}
