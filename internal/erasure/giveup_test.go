package erasure_test

import (
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/erasure"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
)

// What a person gives up is the platform's income, and so is what returns to the organisation afterwards.
func TestDelete_GivenUpIsBreakage(t *testing.T) {
	t.Parallel()
	x := newPerson(t)
	w := billingtest.New(t, x.d)
	wallet, bond := ledger.Wallet(x.p.Org, billingtest.EUR), ledger.HostBond(x.p.Org, billingtest.EUR)
	w.Move(ledger.StripeClearing(billingtest.EUR), wallet, 50*money.Unit)
	w.Move(ledger.StripeClearing(billingtest.EUR), bond, 7*money.Unit)
	if err := x.delete(true); err != nil {
		t.Fatal(err)
	}
	want := func(income money.Nano) {
		t.Helper()
		if a, b := w.Balance(wallet), w.Balance(bond); a != 0 || b != 0 {
			t.Errorf("the wallet has %s, the bond %s", a, b)
		}
		if n := w.Balance(ledger.Breakage(billingtest.EUR)); n != income {
			t.Errorf("breakage is %s, want %s", n, income)
		}
		w.MustBalance()
	}
	want(57 * money.Unit)
	w.Move(ledger.StripeClearing(billingtest.EUR), wallet, 2*money.Unit) // a refund that did not arrive
	w.Move(ledger.StripeClearing(billingtest.EUR), ledger.Wallet(w.Org(), billingtest.EUR), money.Unit)
	for _, n := range []int{1, 0} {
		if got, err := erasure.BookGivenUp(t.Context(), x.d); got != n || err != nil {
			t.Errorf("%d organisations processed, want %d: %v", got, n, err)
		}
	}
	want(59 * money.Unit)
}
