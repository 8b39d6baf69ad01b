package postpaid

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// invoiced uses 10.00 on credit and ends the period, and returns the new draft.
func (w *world) invoiced() (draft string) {
	w.T.Helper()
	w.set(Change{On: true, Limit: 50 * money.Unit, Reason: "trusted"})
	w.SendAll(w.p.out)
	hold := ledger.Hold(w.org, id.New[id.Cluster](), eur)
	for _, err := range []error{
		w.Post("authorise", ledger.Transfer{Debit: ledger.Wallet(w.org, eur), Credit: hold, Amount: 10 * money.Unit}),
		w.Post("usage", ledger.Transfer{Debit: hold, Credit: ledger.HostPending(w.operator, eur), Amount: 10 * money.Unit}),
	} {
		if err != nil {
			w.T.Fatal(err)
		}
	}
	w.pass(time.Hour)
	if err := w.charge(); err != nil {
		w.T.Fatal(err)
	}
	w.SendAll(w.p.out)
	w.pass(time.Minute)
	return w.fake.Billing.EndPeriod(w.customer())[0]
}

// ofOnly asserts what the only invoice is, for its payer.
func (w *world) ofOnly(state string, net, on money.Nano) CreditInvoice {
	w.T.Helper()
	all, err := w.p.Invoices(w.T.Context(), w.org, 10)
	if err != nil || len(all) != 1 {
		w.T.Fatalf("%+v %v", all, err)
	}
	if in := all[0]; in.State != state || in.Net != net || in.Tax.Amount != on || in.Total != net+on {
		w.T.Errorf("%+v", in)
	}
	return all[0]
}

// The tax cannot be determined: nothing is invoiced. What is decided then stays, whatever the rate is later. An invoice
// that is taken back takes its tax along.
func TestTax_Invoice(t *testing.T) {
	t.Parallel()
	w := newWorldPaying(t, dbtest.New(t), "pm_card_chargeCustomerFail")
	w.taxes.Flat = tax.Flat{Home: "DE", Rates: map[string]int64{"DE": 190_000}}
	draft := w.invoiced()
	w.taxes.away = true
	if _, err := w.pay.Invoices.Refresh(t.Context(), draft); err == nil || len(w.invoices()) != 0 {
		t.Fatal("a draft is taken without its tax", err)
	}
	w.taxes.away = false
	if _, err := w.pay.Invoices.Refresh(t.Context(), draft); err != nil {
		t.Fatal(err)
	}
	w.taxes.Rates["DE"] = 500_000
	w.settle()
	in := w.ofOnly("open", 10*money.Unit, 190*money.Cent)
	if in.Tax.Percent != "19" || in.Tax.Name != "VAT" {
		t.Errorf("%+v", in)
	}
	if n, owed := w.Balance(ledger.TaxPayable(eur)), w.terms().Owed; n != 190*money.Cent || owed != 1190*money.Cent {
		t.Errorf("tax %s, owed %s", n, owed)
	}
	if _, err := w.fake.Client.VoidInvoice(t.Context(), "void", draft); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := w.pay.Invoices.Refresh(t.Context(), draft); err != nil {
			t.Fatal(err)
		}
	}
	if n, owed := w.Balance(ledger.TaxPayable(eur)), w.terms().Owed; n != 0 || owed != 10*money.Unit {
		t.Errorf("void: tax %s, owed %s", n, owed)
	}
	r, err := tax.ReportOf(t.Context(), w.DB.Q, eur, time.Now().UTC().Format("2006"))
	if err != nil || len(r.Lines) != 1 || r.Lines[0].Sold != 10*money.Unit || r.Lines[0].Returned != 10*money.Unit ||
		r.Book != 0 {
		t.Errorf("%+v %v", r, err)
	}
	w.MustBalance()
}

// A business elsewhere in the EU accounts for the tax: the invoice states this, and the sale is in the report.
func TestTax_ReverseCharge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.New(t))
	w.taxes.Flat = tax.Flat{Home: "DE", Rates: tax.EU()}
	w.Exec("INSERT INTO org_legal (org_id, name, address, country, vat_id) VALUES ($1, 'Une SARL', ARRAY['Paris'], "+
		"'FR', 'FR12345678901')", w.org)
	draft := w.invoiced()
	w.settle()
	if in := w.ofOnly("paid", 10*money.Unit, 0); in.Tax.Reason != tax.ReverseCharge || in.Tax.Note == "" {
		t.Errorf("%+v", in)
	}
	in, err := w.fake.Client.Invoice(t.Context(), draft)
	if err != nil || len(in.Lines) == 0 || in.Lines[len(in.Lines)-1].Description != tax.Note(tax.ReverseCharge, "FR") &&
		in.Lines[0].Description != tax.Note(tax.ReverseCharge, "FR") {
		t.Errorf("%+v %v", in, err)
	}
	r, err := tax.ReportOf(t.Context(), w.DB.Q, eur, time.Now().UTC().Format("2006"))
	if err != nil || len(r.Lines) != 1 || r.Lines[0].VATID != "FR12345678901" || r.Net != 10*money.Unit || r.Tax != 0 {
		t.Errorf("%+v %v", r, err)
	}
	w.MustBalance()
}
