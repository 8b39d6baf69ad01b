package reconcile

import (
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
)

// BalanceKey returns the ledger key of an entry that books a change of Stripe's balance by the change's own id.
func BalanceKey(txn string) string { return "txn:" + txn }

// InvoiceKey returns the ledger key of the entry that books an invoice's payment.
func InvoiceKey(invoice string) string { return "invoice:" + invoice }

// FeeEntry returns the entry that books the fee which Stripe deducted from a change of its balance; any is false if
// there was no fee.
func FeeEntry(b stripe.BalanceTx, ref string) (e ledger.Entry, any bool) {
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
