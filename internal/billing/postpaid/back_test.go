package postpaid

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// frozenEarnings returns what waits of the operator's earnings from invoices' payments that are taken back.
func (w *world) frozenEarnings() []dbq.DisputedEarningsRow {
	w.T.Helper()
	rows, err := w.DB.Q.DisputedEarnings(w.T.Context(), []pgtype.UUID{{
		Bytes: w.operator.UUID(),
		Valid: true,
	}}, time.Time{}, eur)
	if err != nil {
		w.T.Fatal(err)
	}
	return rows
}

// paidInvoice returns an invoice of 10.00 and 19 % that the card paid, and its payment.
func (w *world) paidInvoice() (invoice, payment string) {
	w.T.Helper()
	w.taxes.Flat = tax.Flat{Home: "DE", Rates: map[string]int64{"DE": 190_000}}
	invoice = w.invoiced()
	w.settle()
	in, err := w.fake.Client.Invoice(w.T.Context(), invoice)
	if err != nil || in.Payment == "" || in.AmountPaid != 1190 {
		w.T.Fatal(in, err)
	}
	return invoice, in.Payment
}

// What a bank takes back of an invoice's payment is owed again; the org's own money is set aside, and what hosts earned
// in the invoice's period waits, until it is decided. However often and late Stripe sends the events.
func TestDispute_FreezesEarnings(t *testing.T) {
	t.Parallel()
	for _, won := range []bool{true, false} {
		d, k := dbtest.NewMortal(t)
		w := newWorld(t, d)
		invoice, payment := w.paidInvoice()
		wallet, aside := ledger.Wallet(w.org, eur), ledger.DisputeHold(w.org, eur)
		if err := w.Post("promo", ledger.Transfer{
			Debit:  ledger.Promo(eur),
			Credit: wallet,
			Amount: 4 * money.Unit,
		}); err != nil {
			t.Fatal(err)
		}
		dispute := w.fake.Disputes.Open(payment, 1190)
		ask := func() error {
			_, err := w.in.Refresh(t.Context(), dispute)
			return err
		}
		w.dies(k, "disputed", ask)
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		w.stands("disputed", 1190*money.Cent, 0, 190*money.Cent)
		if h, n := w.Balance(aside), w.Balance(wallet); h != 4*money.Unit || n != 0 {
			t.Errorf("%s is set aside, %s in the wallet", h, n)
		}
		if rows := w.frozenEarnings(); len(rows) != 1 || rows[0].Amount != int64(10*money.Unit) ||
			rows[0].Earned != int64(10*money.Unit) || rows[0].RenterOrgID != w.org {
			t.Errorf("frozen: %+v", rows)
		}
		w.fake.Disputes.Decide(dispute, won)
		w.dies(k, "decided", ask)
		w.Deliver(w.in, w.fake.Webhooks.Deliveries())
		owed, left := money.Nano(0), 4*money.Unit
		if !won { // what was set aside pays a part
			owed, left = 790*money.Cent, 0
		}
		w.stands("decided", owed, 0, 190*money.Cent)
		if h, n := w.Balance(aside), w.Balance(wallet); h != 0 || n != left {
			t.Errorf("won %t: %s is set aside, %s in the wallet", won, h, n)
		}
		frozen := 0
		if !won { // until a review takes it over
			frozen = 1
		}
		if rows := w.frozenEarnings(); len(rows) != frozen {
			t.Errorf("won %t: frozen: %+v", won, rows)
		}
		if r, err := w.rec.Reconcile(t.Context()); err != nil || r.Suspense != 0 || r.Matched == 0 {
			t.Errorf("%s: %+v %v", invoice, r, err)
		}
	}
}

// A refund of an invoice's payment that a person made at Stripe is given away with its tax, in parts to the last cent,
// not owed again and not in suspense. The hosts' earnings wait until an admin lets them have them, or the bank sends it
// back.
func TestRefund_InvoiceRefundedAtStripe(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	w := newWorld(t, d)
	_, payment := w.paidInvoice()
	stands := func(when string, given, on money.Nano, waits int) {
		t.Helper()
		w.stands(when, 0, 0, on)
		if g := -w.Balance(ledger.Goodwill(eur)); g != given || w.Balance(ledger.Suspense(eur)) != 0 {
			t.Errorf("%s: %s given away", when, g)
		}
		if rows := w.frozenEarnings(); len(rows) != waits {
			t.Errorf("%s: frozen: %+v", when, rows)
		}
		if _, err := w.rec.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := -w.Balance(ledger.StripeClearing(eur)),
			money.Nano(w.fake.Balance.Cents("eur"))*money.Cent; got != want {
			t.Errorf("%s: clearing %s, Stripe has %s", when, got, want)
		}
	}
	first := w.fake.Refunds.ByHand(payment, 500)
	w.dies(k, "refunded", func() error {
		_, err := w.in.Refresh(t.Context(), first)
		return err
	})
	stands("a part", 421*money.Cent, 111*money.Cent, 1) // ⌊190 × 500 / 1190⌋ = 79
	w.fake.Refunds.ByHand(payment, 690)
	if _, err := w.rec.Reconcile(t.Context()); err != nil { // no event came
		t.Fatal(err)
	}
	stands("all of it", 10*money.Unit, 0, 2)
	w.Deliver(w.in, w.fake.Webhooks.Deliveries())
	stands("heard again", 10*money.Unit, 0, 2)
	if now := w.terms(); now.Left != 50*money.Unit {
		t.Errorf("%+v", now)
	}

	release := func(who account.Principal, refund, reason string) error {
		return billingtest.Err(w.pay.Refunds.Approve(t.Context(), who,
			refund, reason, idem.Request{}))
	}
	for name, c := range map[string]struct {
		who    account.Principal
		refund string
		reason string
		want   fault.Kind
	}{
		"a renter":  {account.Principal{Org: w.org}, first, "x", fault.Forbidden},
		"no reason": {w.boss, first, " ", fault.Invalid},
		"no such":   {w.boss, "re_none", "x", fault.NotFound},
	} {
		if err := release(c.who, c.refund, c.reason); !fault.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := release(w.boss, first, "our fault"); err != nil {
		t.Fatal(err)
	}
	if err := release(w.boss, first, "again"); !fault.Is(err, fault.Conflict) {
		t.Error(err)
	}
	stands("released", 10*money.Unit, 0, 1)
	w.fake.Refunds.Fail(w.fake.Refunds.IDs()[1])
	w.Deliver(w.in, w.fake.Webhooks.Deliveries())
	stands("one comes back", 421*money.Cent, 111*money.Cent, 0)
}
