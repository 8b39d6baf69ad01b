package postpaid

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// byBank books a transfer.
func (w *world) byBank(invoice, reference string, n money.Nano) error {
	return billingtest.Err(w.p.BookBankPayment(w.T.Context(), w.boss, w.org, invoice, BankPayment{
		Amount:    n,
		Reference: reference,
		Reason:    "on the statement",
	}, idem.Request{}))
}

// lostInvoice returns one of 11.90, 1.90 of it tax, whose payment was disputed and lost with own of the org's money set
// aside.
func (w *world) lostInvoice(own money.Nano) (invoice, dispute string) {
	w.T.Helper()
	invoice, payment := w.paidInvoice()
	if own > 0 {
		if err := w.Post("promo", ledger.Transfer{
			Debit:  ledger.Promo(eur),
			Credit: ledger.Wallet(w.org, eur),
			Amount: own,
		}); err != nil {
			w.T.Fatal(err)
		}
	}
	dispute = w.fake.Disputes.Open(payment, 1190)
	w.fake.Disputes.Decide(dispute, false)
	if _, err := w.in.Refresh(w.T.Context(), dispute); err != nil {
		w.T.Fatal(err)
	}
	return invoice, dispute
}

// lostUnpaid returns what the lists show of the oldest invoice.
func (w *world) lostUnpaid() (unpaid, lost, banked money.Nano) {
	w.T.Helper()
	all, err := w.p.InvoicesOf(w.T.Context(), w.boss, w.org, 10)
	if err != nil || len(all) == 0 {
		w.T.Fatal(all, err)
	}
	in := all[len(all)-1]
	return in.LostUnpaid, in.Lost, in.PaidByBank
}

// What a lost dispute left owed is paid by bank before it was given up: it is not owed any more, its tax stays owed,
// and a transfer is booked once, never more than is unpaid, wherever the server dies.
func TestBank_PaysLostDispute(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	w := newWorld(t, d)
	invoice, _ := w.lostInvoice(4 * money.Unit)
	w.stands("lost", 790*money.Cent, 0, 190*money.Cent)
	w.dies(k, "a part is paid", func() error { return w.byBank(invoice, "T 1", 300*money.Cent) })
	for range 2 { // the same transfer
		if err := w.byBank(invoice, " T 1 ", 300*money.Cent); err != nil {
			t.Error(err)
		}
	}
	if err := w.byBank(invoice, "T 1", 200*money.Cent); !fault.Is(err, fault.Conflict) {
		t.Error("the same transfer with another amount:", err)
	}
	if err := w.byBank(invoice, "T 2", 491*money.Cent); !fault.Is(err, fault.Invalid) {
		t.Error("too much:", err)
	}
	w.stands("a part is paid", 490*money.Cent, 0, 190*money.Cent)
	if unpaid, lost, banked := w.lostUnpaid(); unpaid != 490*money.Cent || lost != unpaid || banked != 300*money.Cent {
		t.Error(unpaid, lost, banked)
	}
	if err := w.byBank(invoice, "T 2", 490*money.Cent); err != nil {
		t.Fatal(err)
	}
	w.stands("all is paid", 0, 0, 190*money.Cent)
	if n := w.Balance(ledger.Bank(eur)); n != -790*money.Cent {
		t.Error("bank:", n)
	}
	for _, err := range []error{w.byBank(invoice, "T 3", money.Cent), w.giveUp(invoice)} {
		if !fault.Is(err, fault.Conflict) {
			t.Error("nothing is unpaid:", err)
		}
	}
	var acts int
	if err := d.Pool.QueryRow(t.Context(),
		"SELECT count(*) FROM audit_event WHERE action = 'billing.bank_payment'").Scan(&acts); err != nil || acts != 2 {
		t.Error(acts, err)
	}
	if _, err := d.Pool.Exec(t.Context(), "UPDATE postpaid_bank_payment SET amount = 1"); err == nil {
		t.Error("what was booked was changed")
	}
	if now := w.terms(); now.Owed != 0 || now.Stopped != "" || now.Left != 50*money.Unit {
		t.Errorf("%+v", now)
	}
	w.MustBalance()
}

// After it was given up, a transfer pays what is still owed first and then makes up for the bad debt, whose tax is owed
// again; nothing is lent until all of it is paid.
func TestBank_PaysWrittenOff(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	w := newWorld(t, d)
	invoice, dispute := w.lostInvoice(4 * money.Unit)
	if err := w.giveUp(invoice); err != nil {
		t.Fatal(err)
	}
	w.stands("given up", 0, 664*money.Cent, 64*money.Cent)
	w.dies(k, "a part is paid", func() error { return w.byBank(invoice, "T 1", 500*money.Cent) })
	w.stands("a part is paid", 0, 243*money.Cent, 143*money.Cent) // ⌊126 × 500 / 790⌋ = 79 of tax
	if now := w.terms(); now.WrittenOff != 290*money.Cent || now.Left != 0 || now.Stopped == "" {
		t.Errorf("%+v", now)
	}
	if unpaid, lost, banked := w.lostUnpaid(); unpaid != 290*money.Cent || lost != 0 || banked != 500*money.Cent {
		t.Error(unpaid, lost, banked)
	}
	if err := w.byBank(invoice, "T 2", 291*money.Cent); !fault.Is(err, fault.Invalid) {
		t.Error("too much:", err)
	}
	w.fake.Disputes.GiveAgain(dispute, 90) // and the bank some
	if _, err := w.in.Refresh(t.Context(), dispute); err != nil {
		t.Fatal(err)
	}
	if err := w.byBank(invoice, "T 2", 201*money.Cent); !fault.Is(err, fault.Invalid) {
		t.Error("what the bank gave is paid again:", err)
	}
	w.dies(k, "the rest is paid", func() error { return w.byBank(invoice, "T 2", 200*money.Cent) })
	w.stands("all is paid", 0, 0, 190*money.Cent)
	if now := w.terms(); now.WrittenOff != 0 || now.Stopped != "" || now.Left != 50*money.Unit {
		t.Errorf("%+v", now)
	}
	if x := w.writeOff(); x.State != Recovered || x.ClosedAt == nil {
		t.Errorf("%+v", x)
	}
	if n := w.Balance(ledger.Bank(eur)); n != -700*money.Cent {
		t.Error("bank:", n)
	}
	if _, err := w.in.Refresh(t.Context(), dispute); err != nil { // a repeated event
		t.Fatal(err)
	}
	w.stands("heard again", 0, 0, 190*money.Cent)
}

// A part is paid, the rest given up, and one more transfer pays it: an org that was switched off ends, and what is
// short of a cent, because its own money had fractions, is given away.
func TestBank_PartPaidRestWrittenOff(t *testing.T) {
	t.Parallel()
	for _, given := range []bool{false, true} {
		w := newWorld(t, dbtest.New(t))
		invoice, _ := w.lostInvoice(4*money.Unit - 1_234_567) // 7.901234567 are owed
		w.set(Change{Reason: "over"})
		w.settle()
		if err := w.byBank(invoice, "T 1", 100*money.Cent); err != nil {
			t.Fatal(err)
		}
		if given {
			if err := w.giveUp(invoice); err != nil {
				t.Fatal(err)
			}
			if now := w.terms(); now.WrittenOff != 690*money.Cent+1_234_567 || now.Owed != 0 {
				t.Errorf("%+v", now)
			}
		}
		if err := w.byBank(invoice, "T 2", 691*money.Cent); !fault.Is(err, fault.Invalid) {
			t.Error("too much:", err)
		}
		if err := w.byBank(invoice, "T 2", 690*money.Cent); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.stands(fmt.Sprintf("given up %t, paid", given), 0, 0, 190*money.Cent)
		if n := w.Balance(ledger.Goodwill(eur)); n != -1_234_567 {
			t.Errorf("given up %t: %s given away", given, n)
		}
		if now := w.terms(); now.State != Off || now.WrittenOff != 0 || now.Stopped != "" {
			t.Errorf("given up %t: %+v", given, now)
		}
		if unpaid, lost, banked := w.lostUnpaid(); unpaid != 0 || lost != 0 || banked != 790*money.Cent {
			t.Error(unpaid, lost, banked)
		}
	}
}

// Only an admin books a transfer, in whole cents and with its reference and a reason, and only for what a lost dispute
// took.
func TestBank_AdminOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.New(t))
	invoice, payment := w.paidInvoice()
	good := BankPayment{money.Unit, "T", "x"}
	book := func(name string, who account.Principal, org id.Org, invoice string, b BankPayment, want fault.Kind) {
		t.Helper()
		if err := billingtest.Err(w.p.BookBankPayment(t.Context(), who, org, invoice, b, idem.Request{})); !fault.Is(err,
			want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	book("never disputed", w.boss, w.org, invoice, good, fault.Conflict)
	dispute := w.fake.Disputes.Open(payment, 1190)
	if _, err := w.in.Refresh(t.Context(), dispute); err != nil {
		t.Fatal(err)
	}
	book("not decided", w.boss, w.org, invoice, good, fault.Conflict)
	w.fake.Disputes.Decide(dispute, false)
	if _, err := w.in.Refresh(t.Context(), dispute); err != nil {
		t.Fatal(err)
	}
	book("a renter", account.Principal{Org: w.org}, w.org, invoice, good, fault.Forbidden)
	book("another's", w.boss, w.operator, invoice, good, fault.NotFound)
	book("no such", w.boss, w.org, "in_none", good, fault.NotFound)
	for name, b := range map[string]BankPayment{
		"nothing":        {0, "T", "x"},
		"below zero":     {-money.Unit, "T", "x"},
		"part of a cent": {money.Unit + 1, "T", "x"},
		"no reference":   {money.Unit, " ", "x"},
		"no reason":      {money.Unit, "T", " "},
		"too much":       {1191 * money.Cent, "T", "x"},
	} {
		book(name, w.boss, w.org, invoice, b, fault.Invalid)
	}
	w.stands("nothing is booked", 1190*money.Cent, 0, 190*money.Cent)
}
