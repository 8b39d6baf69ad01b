package postpaid

import (
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// What a lost dispute of an invoice's payment leaves owed is given up, once, wherever the server dies and whatever
// Stripe repeats the event: it is bad debt, its share of the tax is owed no more, nothing is lent, and who was switched
// off ends. Money that the bank gives again makes up for it.
func TestWriteOff_RestOfLostDispute(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	w := newWorld(t, d)
	invoice, payment := w.paidInvoice()
	if err := w.Post("promo", ledger.Transfer{
		Debit:  ledger.Promo(eur),
		Credit: ledger.Wallet(w.org, eur),
		Amount: 4 * money.Unit,
	}); err != nil {
		t.Fatal(err)
	}
	dispute := w.fake.Disputes.Open(payment, 1190)
	if _, err := w.in.Refresh(t.Context(), dispute); err != nil {
		t.Fatal(err)
	}
	if err := w.giveUp(invoice); !fault.Is(err, fault.Conflict) {
		t.Error("given up while it is open:", err)
	}
	w.fake.Disputes.Decide(dispute, false)
	w.Deliver(w.in, w.fake.Webhooks.Deliveries())
	w.stands("lost", 790*money.Cent, 0, 190*money.Cent) // 4.00 were set aside and paid a part
	w.set(Change{Reason: "over"})
	w.settle()
	all, err := w.p.InvoicesOf(t.Context(), w.boss, w.org, 10)
	if now := w.terms(); err != nil || now.State != Ending || len(all) == 0 || all[len(all)-1].Lost != 790*money.Cent {
		t.Fatalf("%+v %+v %v", now, all, err)
	}

	w.dies(k, "given up", func() error {
		if err := w.giveUp(invoice); !fault.Is(err, fault.Conflict) { // what died came after the commit
			return err
		}
		return nil
	})
	given := func(when string) {
		t.Helper()
		w.stands(when, 0, 664*money.Cent, 64*money.Cent) // ⌊190 × 790 / 1190⌋ = 126 of tax
		if now := w.terms(); now.State != Off || now.WrittenOff != 790*money.Cent || now.Left != 0 {
			t.Errorf("%s: %+v", when, now)
		}
	}
	given("given up")
	if err := w.giveUp(invoice); !fault.Is(err, fault.Conflict) {
		t.Error("given up twice:", err)
	}
	w.refresh(invoice)
	w.Deliver(w.in, w.fake.Webhooks.Deliveries())
	w.settle()
	given("heard again")
	if now := w.set(Change{On: true, Limit: 50 * money.Unit, Reason: "again"}); now.Left != 0 || now.Stopped == "" {
		t.Errorf("it is lent: %+v", now)
	}
	w.settle()

	w.fake.Disputes.GiveAgain(dispute, 500)
	w.dies(k, "a part comes again", func() error {
		_, err := w.in.Refresh(t.Context(), dispute)
		return err
	})
	w.stands("a part came again", 0, 243*money.Cent, 143*money.Cent) // ⌊126 × 500 / 790⌋ = 79 of tax
	if now := w.terms(); now.WrittenOff != 290*money.Cent || now.Left != 0 {
		t.Errorf("%+v", now)
	}
	w.fake.Disputes.GiveAgain(dispute, 290)
	w.Deliver(w.in, w.fake.Webhooks.Deliveries())
	if _, err := w.in.Refresh(t.Context(), dispute); err != nil {
		t.Fatal(err)
	}
	w.stands("all of it came again", 0, 0, 190*money.Cent)
	if now := w.terms(); now.WrittenOff != 0 || now.Stopped != "" || now.Left != 50*money.Unit {
		t.Errorf("%+v", now)
	}
}
