package postpaid

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// giveUp decides that an invoice is not to be collected.
func (w *world) giveUp(invoice string) error {
	return billingtest.Err(w.p.WriteOff(w.T.Context(), w.boss, w.org, invoice, "insolvent", idem.Request{}))
}

// decide is giveUp while Stripe is away.
func (w *world) decide(invoice string) {
	w.T.Helper()
	w.fake.Faults.Fail(sandbox.Down)
	if err := w.giveUp(invoice); err != nil {
		w.T.Fatal(err)
	}
	w.fake.Faults.Heal()
}

// refresh asks Stripe for an invoice and takes in the answer.
func (w *world) refresh(invoice string) {
	w.T.Helper()
	if _, err := w.pay.Invoices.Refresh(w.T.Context(), invoice); err != nil {
		w.T.Fatal(err)
	}
}

// stands asserts what is owed, bad debt and owed to tax offices.
func (w *world) stands(when string, owed, bad, on money.Nano) {
	w.T.Helper()
	if o, b, x := w.terms().Owed, -w.Balance(ledger.BadDebt(eur)), w.Balance(ledger.TaxPayable(eur)); o != owed ||
		b != bad || x != on {
		w.T.Errorf("%s: %s owed, %s bad debt, %s tax; want %s, %s, %s", when, o, b, x, owed, bad, on)
	}
	r, err := tax.ReportOf(w.T.Context(), w.DB.Q, eur, time.Now().UTC().Format("2006"))
	if err != nil || r.Book != on || r.Payable != on {
		w.T.Errorf("%s: report %+v %v", when, r, err)
	}
	w.MustBalance()
}

// writeOff returns what became of the only invoice's.
func (w *world) writeOff() WriteOff {
	w.T.Helper()
	all, err := w.p.InvoicesOf(w.T.Context(), w.boss, w.org, 10)
	if err != nil || len(all) != 1 || all[0].WriteOff == nil {
		w.T.Fatalf("%+v %v", all, err)
	}
	return *all[0].WriteOff
}

// An invoice that the card does not pay is given up: it is bad debt, its tax is owed no more, and nothing is lent. Paid
// after all, the bad debt is made up for, the tax is owed again, and so is the credit there.
func TestWriteOff_Invoice(t *testing.T) {
	t.Parallel()
	w := newWorldPaying(t, dbtest.New(t), "pm_card_chargeCustomerFail")
	w.taxes.Flat = tax.Flat{Home: "DE", Rates: map[string]int64{"DE": 190_000}}
	draft := w.invoiced()
	w.settle()
	w.stands("unpaid", 1190*money.Cent, 0, 190*money.Cent)
	w.decide(draft)
	w.stands("decided", 1190*money.Cent, 0, 190*money.Cent) // the request has not reached Stripe, nothing is booked
	if err := w.giveUp(draft); !fault.Is(err, fault.Conflict) {
		t.Error("given up twice:", err)
	}
	w.fake.Faults.Fail(sandbox.LostAnswer)
	w.SendAll(w.p.out)
	w.refresh(draft)
	w.Deliver(w.in, w.fake.Webhooks.Deliveries())
	w.stands("given up", 0, 10*money.Unit, 0)
	if x := w.writeOff(); x.State != Booked || x.Amount != 1190*money.Cent || x.Tax != 190*money.Cent ||
		x.Reason != "insolvent" || x.BookedAt == nil {
		t.Errorf("%+v", x)
	}
	if now := w.terms(); now.State != On || now.Stopped == "" || now.Left != 0 || now.WrittenOff != 1190*money.Cent {
		t.Errorf("%+v", now)
	}
	if w.set(Change{On: true, Limit: 500 * money.Unit, Reason: "more"}).Left != 0 {
		t.Error("what was written off is lent again")
	}
	w.pass(31 * 24 * time.Hour)
	w.fake.Billing.EndPeriod(w.customer())
	w.settle()
	w.stands("a month later", 0, 10*money.Unit, 0)
	for _, in := range w.invoices() {
		if in.ID != draft && in.Total != 0 {
			t.Errorf("what was written off is billed again: %+v", in)
		}
	}
	if !w.fake.Invoices.PayHere(draft, "pm_card_visa") {
		t.Fatal("the page takes no card")
	}
	for range 2 {
		w.refresh(draft)
	}
	w.stands("paid after all", 0, 0, 190*money.Cent)
	if now := w.terms(); now.Stopped != "" || now.Left != 500*money.Unit || now.WrittenOff != 0 {
		t.Errorf("%+v", now)
	}
	if r, err := w.rec.Reconcile(t.Context()); err != nil || r.Matched != 1 || r.Suspense != 0 {
		t.Errorf("%+v %v", r, err)
	}
}

// An org that was switched off ends with an invoice given up, though nothing was paid, and is lent nothing when it is
// switched on.
func TestWriteOff_EndsPayingAfterwards(t *testing.T) {
	t.Parallel()
	w := newWorldPaying(t, dbtest.New(t), "pm_card_chargeCustomerFail")
	draft := w.invoiced()
	w.settle()
	w.set(Change{Reason: "over"})
	w.settle()
	if now := w.terms(); now.State != Ending || now.Owed != 10*money.Unit {
		t.Fatalf("%+v", now)
	}
	if err := w.giveUp(draft); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if now := w.terms(); now.State != Off || now.Owed != 0 || now.WrittenOff != 10*money.Unit {
		t.Errorf("%+v", now)
	}
	if now := w.set(Change{
		On:     true,
		Limit:  50 * money.Unit,
		Reason: "again",
	}); now.State != On || now.Left != 0 || now.Stopped == "" {
		t.Errorf("%+v", now)
	}
	w.MustBalance()
}

// What overtakes a decision stands: an invoice that was paid before the request reached Stripe is not written off. One
// that is voided after it was given up is owed and billed again.
func TestWriteOff_Overtaken(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	w := newWorldPaying(t, d, "pm_card_chargeCustomerFail")
	w.taxes.Flat = tax.Flat{Home: "DE", Rates: map[string]int64{"DE": 190_000}}
	draft := w.invoiced()
	w.settle()
	w.decide(draft)
	if !w.fake.Invoices.PayHere(draft, "pm_card_visa") {
		t.Fatal("the page takes no card")
	}
	w.SendAll(w.p.out)
	w.stands("paid before", 0, 0, 190*money.Cent)
	if x := w.writeOff(); x.State != Overtaken || x.Amount != 0 {
		t.Errorf("%+v", x)
	}
	if err := w.giveUp(draft); !fault.Is(err, fault.Conflict) {
		t.Error("a paid invoice is given up:", err)
	}

	w = newWorldPaying(t, dbtest.New(t), "pm_card_chargeCustomerFail")
	w.taxes.Flat = tax.Flat{Home: "DE", Rates: map[string]int64{"DE": 190_000}}
	draft = w.invoiced()
	w.settle()
	if _, err := w.fake.Client.GiveUpInvoice(t.Context(), "by hand", draft); err != nil {
		// Stripe's setting, or its dashboard
		t.Fatal(err)
	}
	w.settle()
	w.stands("uncollectible, says Stripe alone", 1190*money.Cent, 0, 190*money.Cent)
	if err := w.giveUp(draft); err != nil {
		t.Fatal(err)
	}
	w.SendAll(w.p.out)
	w.stands("and the operator too", 0, 10*money.Unit, 0)
	if _, err := w.fake.Client.VoidInvoice(t.Context(), "void", draft); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w.refresh(draft)
	}
	w.stands("void", 10*money.Unit, 0, 0)
	w.pass(31 * 24 * time.Hour)
	w.fake.Billing.EndPeriod(w.customer())
	w.settle()
	w.stands("billed again", 1190*money.Cent, 0, 190*money.Cent)
}

// Paid to the platform's bank after it was given up, it is booked the same way. A refusal by Stripe leaves it owed,
// admins are notified, and it may be decided again.
func TestWriteOff_RefusedByStripe(t *testing.T) {
	t.Parallel()
	w := newWorldPaying(t, dbtest.New(t), "pm_card_chargeCustomerFail")
	draft := w.invoiced()
	w.settle()
	w.Exec("INSERT INTO app_user (id, email, password_hash, admin) VALUES ($1, 'boss@example.com', '', true)", w.boss.User)
	w.Exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'owner')", w.boss.Org, w.boss.User)
	w.decide(draft)
	w.Exec(`UPDATE stripe_outbox SET params = jsonb_set(params::jsonb, '{invoice}', '"in_none"') WHERE kind =
		'invoice.writeoff'`)
	w.SendAll(w.p.out)
	if x := w.writeOff(); x.State != Refused || x.Failure == "" {
		t.Fatalf("%+v", x)
	}
	var told int
	if err := w.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM notice WHERE org_id = $1 AND severity = 'bad'",
		w.boss.Org).Scan(&told); err != nil || told != 1 {
		t.Error(told, err)
	}
	w.stands("refused", 10*money.Unit, 0, 0)
	if err := w.giveUp(draft); err != nil {
		t.Fatal(err)
	}
	w.SendAll(w.p.out)
	w.stands("again", 0, 10*money.Unit, 0)
	if !w.fake.Invoices.PaidByHand(draft) {
		t.Fatal("it cannot be marked as paid")
	}
	w.refresh(draft)
	w.stands("by bank", 0, 0, 0)
	if n := w.Balance(ledger.Bank(eur)); n != -10*money.Unit {
		t.Error(n)
	}
}

// Only an admin gives up an invoice of that org, which the card did not pay, with a reason.
func TestWriteOff_AdminOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.New(t))
	draft := w.invoiced()
	w.settle() // paid
	for name, c := range map[string]struct {
		who     account.Principal
		org     id.Org
		invoice string
		reason  string
		want    fault.Kind
	}{
		"a renter":         {account.Principal{Org: w.org}, w.org, draft, "x", fault.Forbidden},
		"no reason":        {w.boss, w.org, draft, " ", fault.Invalid},
		"another's":        {w.boss, w.operator, draft, "x", fault.NotFound},
		"no such":          {w.boss, w.org, "in_none", "x", fault.NotFound},
		"one that is paid": {w.boss, w.org, draft, "x", fault.Conflict},
	} {
		if err := billingtest.Err(w.p.WriteOff(t.Context(), c.who, c.org, c.invoice, c.reason,
			idem.Request{})); !fault.Is(err,
			c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.p.InvoicesOf(t.Context(), account.Principal{Org: w.org}, w.org, 1); !fault.Is(err, fault.Forbidden) {
		t.Error(err)
	}
}

// The server may die at any statement of what gives an invoice up, of what books it and of what books its payment after
// all.
func TestWriteOff_KilledAtEachStatement(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	w := newWorldPaying(t, d, "pm_card_chargeCustomerFail")
	w.taxes.Flat = tax.Flat{Home: "DE", Rates: map[string]int64{"DE": 190_000}}
	draft := w.invoiced()
	w.settle()
	w.away()
	w.dies(k, "decided", func() error {
		if err := w.giveUp(draft); !fault.Is(err, fault.Conflict) { // it was, and what died came after
			return err
		}
		return nil
	})
	w.fake.Faults.Heal()
	if _, err := w.fake.Client.GiveUpInvoice(t.Context(), "k", draft); err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		_, err := w.pay.Invoices.Refresh(t.Context(), draft)
		return err
	}
	w.dies(k, "booked", ask)
	w.stands("booked", 0, 10*money.Unit, 0)
	w.SendAll(w.p.out)
	w.stands("and said", 0, 10*money.Unit, 0)
	if !w.fake.Invoices.PayHere(draft, "pm_card_visa") {
		t.Fatal("the page takes no card")
	}
	w.dies(k, "paid after all", ask)
	w.stands("paid after all", 0, 0, 190*money.Cent)
}

// An invoice that is voided after it was given up is owed again; the server may die at any statement of what books
// that.
func TestWriteOff_VoidedKilledAtEachStatement(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	w := newWorldPaying(t, d, "pm_card_chargeCustomerFail")
	w.taxes.Flat = tax.Flat{Home: "DE", Rates: map[string]int64{"DE": 190_000}}
	draft := w.invoiced()
	w.settle()
	if err := w.giveUp(draft); err != nil {
		t.Fatal(err)
	}
	w.SendAll(w.p.out)
	w.stands("given up", 0, 10*money.Unit, 0)
	if _, err := w.fake.Client.VoidInvoice(t.Context(), "void", draft); err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		_, err := w.pay.Invoices.Refresh(t.Context(), draft)
		return err
	}
	w.dies(k, "void", ask)
	w.stands("void", 10*money.Unit, 0, 0)
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	w.stands("void, and heard again", 10*money.Unit, 0, 0)
	if x := w.writeOff(); x.State != Voided {
		t.Errorf("%+v", x)
	}
}
