package payment

import (
	"testing"

	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
)

// What Stripe says it holds is compared with the changes that were read and with the ledger. A difference that lasts is
// notified once.
func TestStripesBalanceIsCompared(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.stripe.SettleAfter(48 * 3600e9)
	s.topUp(100 * money.Unit)
	funds := func() *Funds {
		t.Helper()
		if _, err := s.p.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		admin := s.payer
		admin.Admin = true
		r, err := s.p.Reconciliation(t.Context(), admin)
		if err != nil || r.Funds == nil {
			t.Fatalf("%+v %v", r, err)
		}
		return r.Funds
	}
	held := money.Nano(s.stripe.BalanceCents("eur")) * money.Cent
	if f := funds(); f.Available != 0 || f.Pending != held || f.Unread != 0 || f.Unbooked != 0 || f.OffSince != nil ||
		f.Wrong {
		t.Fatalf("%+v, want %s pending", f, held)
	}
	s.stripe.Arrive()
	if f := funds(); f.Available != held || f.Pending != 0 || f.Unread != 0 {
		t.Fatalf("%+v, want %s available", f, held)
	}
	// Stripe holds 7 less than its changes say: they were read wrong, or one was lost.
	boss := s.Admin().Org
	off := stripe.Funds{Currency: "EUR", Available: int64(held/money.Cent) - 700}
	for i, tells := range []int{0, 1, 1} {
		if err := s.p.storeFunds(t.Context(), off); err != nil {
			t.Fatal(err)
		}
		f, err := s.p.Funds(t.Context(), held)
		if err != nil || f.Unread != -7*money.Unit || f.Unbooked != -7*money.Unit || f.OffSince == nil || f.Wrong != (i > 0) {
			t.Fatalf("%d: %+v %v", i, f, err)
		}
		if got := len(s.noticeTitles(boss, "stripe_funds:")); got != tells {
			t.Fatalf("%d: %d notices, want %d", i, got, tells)
		}
		s.Exec("UPDATE stripe_funds SET off_since = off_since - interval '31 minutes'")
		s.Exec("UPDATE notice SET dedupe_key = dedupe_key || '-earlier' WHERE dedupe_key LIKE 'stripe_funds:%'")
	}
	if f := funds(); f.OffSince != nil || f.Wrong || f.Unread != 0 {
		t.Fatalf("%+v", f)
	}
}
