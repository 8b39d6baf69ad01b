package postpaid

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// state returns all that paying afterwards has written, for comparison.
func (w *world) state() (out string) {
	w.T.Helper()
	if err := w.DB.Pool.QueryRow(w.T.Context(), `SELECT coalesce((SELECT jsonb_agg(to_jsonb(p) - 'charged_at' - 'asked_at'
		- 'changed_at' ORDER BY org_id) FROM postpaid_org p)::text, '')
		|| (SELECT count(*) FROM postpaid_charge) || ' charges ' || (SELECT count(*) FROM stripe_outbox) || ' rows ' ||
		(SELECT count(*) FROM ledger_tx) || ' entries '
		|| coalesce((SELECT jsonb_agg(to_jsonb(i) - 'seen_at' ORDER BY id) FROM postpaid_invoice i)::text, '')
		|| coalesce((SELECT jsonb_agg(to_jsonb(b) ORDER BY account_id) FROM ledger_balance b)::text, '') || (SELECT count(*)
		FROM notice) || ' notices ' || (SELECT count(*) FROM dispute) || ' disputes ' || (SELECT count(*) FROM
		postpaid_bank_payment) || ' transfers ' || coalesce((SELECT jsonb_agg(to_jsonb(o) ORDER BY invoice_id) FROM
		postpaid_writeoff o)::text, '') || (SELECT count(*) FROM audit_event) || ' acts'`).Scan(&out); err != nil {
		w.T.Fatal(err)
	}
	return out
}

// dies does something with the server dying at its first statement, its second, and so on until it completes: until
// then nothing at all is written.
func (w *world) dies(k *dbtest.Killer, name string, do func() error) {
	w.T.Helper()
	before := w.state()
	deaths := 0
	for n := int64(1); ; n++ {
		if n > 200 {
			w.T.Fatal(name, "never gets done")
		}
		k.Left.Store(n)
		err := do()
		if k.Left.Swap(0) > 0 { // it was over before
			if err != nil {
				w.T.Fatalf("%s: %v", name, err)
			}
			break
		}
		deaths++
		if err == nil {
			continue // what dies after the commit is no matter
		}
		if after := w.state(); after != before {
			w.T.Fatalf("%s: dead at statement %d, and something is written:\n%s\n%s", name, n, before, after)
		}
	}
	if deaths < 5 {
		w.T.Errorf("%s: only %d statements died", name, deaths)
	}
	w.MustBalance()
}

// away makes Stripe refuse every request until it heals.
func (w *world) away() {
	down := make([]sandbox.Fault, 400)
	for i := range down {
		down[i] = sandbox.Down
	}
	w.fake.Faults.Fail(down...)
}

// The server may die at any statement of what bills an org: nothing is written of what it died in, and done again it is
// done once.
func TestCharge_KilledAtEachStatement(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	w := newWorld(t, d)
	set := func(c Change) func() error {
		return func() error {
			return billingtest.Err(w.p.Set(t.Context(), w.boss, w.org, c, idem.Request{}))
		}
	}
	w.dies(k, "switched on", set(Change{On: true, Limit: 100 * money.Unit, Reason: "trusted"}))
	w.SendAll(w.p.out)
	cluster := id.New[id.Cluster]()
	hold := ledger.Hold(w.org, cluster, eur)
	for _, err := range []error{
		w.Post("authorise", ledger.Transfer{Debit: ledger.Wallet(w.org, eur), Credit: hold, Amount: 20 * money.Unit}),
		w.Post("usage", ledger.Transfer{Debit: hold, Credit: ledger.HostPending(w.operator, eur), Amount: 12_345_678_901}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.pass(time.Hour)
	w.dies(k, "an hour", w.charge)
	if charged := w.terms(); charged.Owed != 12_345_678_901 || charged.Used != 20*money.Unit {
		t.Errorf("%+v", charged)
	}
	w.SendAll(w.p.out)
	w.pass(time.Minute)
	w.Exec("UPDATE postpaid_org SET period_end = clock_timestamp()")
	draft := w.fake.Billing.EndPeriod(w.customer())[0]
	w.taxes.Flat = tax.Flat{Home: "DE", Rates: map[string]int64{"DE": 190_000}}
	ask := func() error {
		_, err := w.pay.Invoices.Refresh(t.Context(), draft)
		return err
	}
	w.away()
	w.dies(k, "a draft", ask)
	w.fake.Faults.Heal()
	if n := w.Balance(ledger.TaxPayable(eur)); n != 0 {
		t.Fatalf("%s of tax on a draft", n)
	}
	w.dies(k, "a draft is closed and its tax booked", func() error { // the request to Stripe is the same each time
		if _, err := d.Pool.Exec(t.Context(), "UPDATE stripe_outbox SET next_at = clock_timestamp() WHERE state IN "+
			"('pending', 'sent', 'unknown')"); err != nil {
			return err
		}
		_, err := w.p.out.SendDue(t.Context())
		return err
	})
	if n := w.Balance(ledger.TaxPayable(eur)); n != 234*money.Cent { // 19 % of 12.34
		t.Errorf("%s of tax", n)
	}
	w.SendAll(w.p.out)
	w.fake.Billing.Run()
	w.dies(k, "a payment", ask)
	if paid := w.terms(); paid.Owed != 5_678_901 {
		t.Errorf("%+v", paid)
	}
	if err := w.Post("hold_release", ledger.Transfer{
		Debit:  hold,
		Credit: ledger.Wallet(w.org, eur),
		Amount: 20*money.Unit - 12_345_678_901,
	}); err != nil {
		t.Fatal(err)
	}
	w.dies(k, "switched off", set(Change{Reason: "over"}))
	w.settle()
	if off := w.terms(); off.State != Off || off.Owed != 0 {
		t.Errorf("%+v", off)
	}
	w.MustBalance()
}

// An invoice that the card does not pay stops what is lent; paid all the same, it is lent again.
func TestInvoice_UnpaidStopsCredit(t *testing.T) {
	t.Parallel()
	w := newWorldPaying(t, dbtest.New(t), "pm_card_chargeCustomerFail")
	w.set(Change{On: true, Limit: 50 * money.Unit, Reason: "trusted"})
	w.SendAll(w.p.out)
	hold := ledger.Hold(w.org, id.New[id.Cluster](), eur)
	for _, err := range []error{
		w.Post("authorise", ledger.Transfer{Debit: ledger.Wallet(w.org, eur), Credit: hold, Amount: 30 * money.Unit}),
		w.Post("usage", ledger.Transfer{Debit: hold, Credit: ledger.HostPending(w.operator, eur), Amount: 10 * money.Unit}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.pass(time.Hour)
	if err := w.charge(); err != nil {
		t.Fatal(err)
	}
	w.SendAll(w.p.out)
	w.pass(time.Minute)
	draft := w.fake.Billing.EndPeriod(w.customer())[0]
	w.settle()
	stopped := w.terms()
	if stopped.State != On || stopped.Stopped == "" || stopped.Left != 0 || stopped.Owed != 10*money.Unit {
		t.Fatalf("%+v", stopped)
	}
	if err := w.Post("authorise", ledger.Transfer{Debit: ledger.Wallet(w.org, eur), Credit: hold, Amount: 1}); err == nil {
		t.Error("lent more while an invoice is not paid")
	}
	if err := w.Post("usage", ledger.Transfer{
		Debit:  hold,
		Credit: ledger.HostPending(w.operator, eur),
		Amount: 2 * money.Unit,
	}); err != nil {
		t.Error("what was authorised is charged all the same:", err)
	}
	w.pass(time.Hour)
	if err := w.charge(); err != nil {
		t.Fatal(err)
	}
	if now := w.terms(); now.Stopped == "" || now.Left != 0 || now.Owed != 12*money.Unit {
		t.Errorf("%+v", now)
	}
	if !w.fake.Invoices.PayHere(draft, "pm_card_visa") {
		t.Fatal("the page takes no card")
	}
	w.settle()
	if now := w.terms(); now.Stopped != "" || now.Owed != 2*money.Unit || now.Left != 30*money.Unit {
		// 18 are held, 2 owed
		t.Errorf("%+v", now)
	}
	var bad int
	if err := w.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM notice WHERE org_id = $1 AND severity = 'bad'",
		w.org).Scan(&bad); err != nil || bad == 0 {
		t.Error(bad, err)
	}
	w.MustBalance()
}
