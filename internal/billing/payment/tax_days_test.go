package payment

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/money"
)

// asOwner changes history as the owner of the tables can.
func (s *shop) asOwner(sql string) {
	s.T.Helper()
	s.Exec("SET session_replication_role = replica; " + sql + "; SET session_replication_role = origin")
}

// The report compares the tax book with the ledger by the totals of closed days and what came since; a closed day that
// was changed is found when its turn comes.
func TestTax_ReportReadsOpenDays(t *testing.T) {
	t.Parallel()
	const u = money.Unit
	s, _ := taxed(t, "pm_card_visa")
	s.lives("DE", "")
	agree := func(when string, want money.Nano) {
		t.Helper()
		r, err := tax.ReportOf(t.Context(), s.DB.Q, "EUR", "2026")
		if err != nil || r.Book != want || r.Payable != want {
			t.Fatalf("%s: book %s, payable %s, want %s: %v", when, r.Book, r.Payable, want, err)
		}
	}
	s.topUp(100 * u)
	agree("open", 19*u)
	for range 2 { // two days that are over
		if _, err := ledger.Link(t.Context(), s.DB, 0); err != nil {
			t.Fatal(err)
		}
		s.asOwner("UPDATE ledger_batch SET made_at = made_at - interval '3 days'; " +
			"UPDATE tax_entry SET created_at = created_at - interval '3 days' WHERE date(created_at) > " +
			"coalesce((SELECT max(day) FROM tax_day), '-infinity')")
		if n, err := ledger.CloseDays(t.Context(), s.DB); err != nil || n == 0 {
			t.Fatal(n, err)
		}
		if n, err := tax.CloseDays(t.Context(), s.DB); err != nil || n == 0 {
			t.Fatal(n, err)
		}
		s.asOwner("UPDATE ledger_batch SET made_at = made_at - interval '3 days'; UPDATE tax_day SET day = day - 3; " +
			"UPDATE tax_entry SET created_at = created_at - interval '3 days'")
		before := s.owed()
		agree("closed", before)
		s.topUp(50 * u)
		agree("closed, and a payment since", before+950*money.Cent)
	}
	if _, err := s.giveBack(20 * u); err != nil {
		t.Fatal(err)
	}
	agree("given back", 3420*money.Cent)
	check := func() error {
		s.Exec("UPDATE tax_day SET checked_at = checked_at - interval '2 days'")
		for range 2 {
			if _, err := tax.CheckDay(t.Context(), s.DB); err != nil {
				return err
			}
		}
		return nil
	}
	s.must(check())
	const change = "UPDATE tax_entry SET tax = tax %s 1 WHERE id = (SELECT min(id) FROM tax_entry)"
	s.asOwner(strings.Replace(change, "%s", "+", 1))
	agree("a closed day is not read again", 3420*money.Cent)
	if err := check(); err == nil {
		t.Fatal("a changed day is not found")
	}
	s.asOwner(strings.Replace(change, "%s", "-", 1))
	s.must(check())
	if _, err := s.DB.Pool.Exec(t.Context(), "UPDATE tax_day SET after = 0"); err == nil {
		t.Fatal("a closed day can be changed")
	}
}
