package payment

import (
	"fmt"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
)

// maxCents bounds what is believed of an amount of Stripe's, in either direction: a billion units, ten times what a
// charge can be. Beyond it something is wrong, and the ledger could not hold many of them.
const maxCents = 100_000_000_000

// fromCents returns an amount of Stripe's; one that cannot be true is an error.
func fromCents(cents int64) (money.Nano, error) {
	if cents > maxCents || cents < -maxCents {
		return 0, fmt.Errorf("amount of %d cents from Stripe is out of range", cents)
	}
	return money.Nano(cents) * money.Cent, nil
}

// balanceKey returns the ledger key of an entry that books a change of Stripe's balance by its own id.
func balanceKey(txn string) string { return "txn:" + txn }

// feeEntry returns what Stripe kept of a change of its balance; any is false when it kept nothing.
func feeEntry(b stripe.BalanceTx, ref string) (e ledger.Entry, any bool) {
	fee := money.Nano(b.FeeCents) * money.Cent
	if fee == 0 {
		return e, false
	}
	x := ledger.Transfer{Debit: ledger.StripeFees(b.Currency), Credit: ledger.StripeClearing(b.Currency), Amount: fee}
	if fee < 0 { // given back
		x = ledger.Transfer{Debit: x.Credit, Credit: x.Debit, Amount: -fee}
	}
	return ledger.Entry{
		Kind:      "stripe_fee",
		Key:       "fee:" + b.ID,
		Ref:       ref,
		Memo:      b.Type,
		Transfers: []ledger.Transfer{x},
	}, true
}
