package postpaid

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
)

// taxRef names the line of an invoice that is its tax.
const taxRef = "tax"

// bill is what an invoice is to be.
type bill struct {
	charged money.Nano // the ledger at its end, since the beginning
	due     int64      // cents, without tax
	taxed   int64      // cents without tax that the tax is on: due, and what of earlier invoices Stripe closed without it
	tax     tax.Tax    // zero Reason: not decided, or Stripe closed the invoice without it
}

// billOf returns what an invoice should be by the ledger, without its tax.
func (p *Postpaid) billOf(ctx context.Context, q *dbq.Queries, org dbq.PostpaidOrg,
	in stripe.Invoice) (b bill, err error) {
	if b.charged, err = p.chargedBy(ctx, q, org, in); err != nil {
		return b, err
	}
	before, err := q.PostpaidInvoicedBefore(ctx, dbq.PostpaidInvoicedBeforeParams{
		OrgID:       org.OrgID,
		PeriodEnd:   in.PeriodEnd,
		PeriodStart: in.PeriodStart,
		ID:          in.ID,
	})
	if err != nil {
		return b, fmt.Errorf("read invoiced before %s: %w", in.ID, err)
	}
	b.due = due(b.charged, before.Net)
	b.taxed = max(0, before.Net+b.due-before.Taxed)
	return b, nil
}

// taxable returns what of a draft has to be taxed, once.
func (p *Postpaid) taxable(ctx context.Context, org id.Org, in stripe.Invoice) (cents int64, ask bool, err error) {
	row, err := p.d.Q.PostpaidOrg(ctx, org)
	if db.NoRows(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("%s: %w", org, err)
	}
	known, err := p.d.Q.PostpaidInvoice(ctx, in.ID)
	if err != nil && !db.NoRows(err) {
		return 0, false, fmt.Errorf("read invoice %s: %w", in.ID, err)
	}
	if err == nil && (known.TaxReason != "" || known.State != stripe.InvoiceDraft) {
		return 0, false, nil
	}
	b, err := p.billOf(ctx, p.d.Q, row, in)
	return b.taxed, b.due > 0, err
}

// frozen returns what was decided for an invoice when its draft was seen. One that Stripe closed without the line of
// its tax bears none; the next one is taxed for it.
func frozen(r dbq.PostpaidInvoice, in stripe.Invoice) bill {
	b := bill{charged: r.Charged, due: r.Due, taxed: r.TaxBase, tax: taxOf(r)}
	if in.Status != stripe.InvoiceDraft && taxLine(in) != r.Tax {
		b.taxed, b.tax = 0, tax.Tax{}
	}
	return b
}

func taxOf(r dbq.PostpaidInvoice) tax.Tax {
	return tax.Tax{
		Cents:   r.Tax,
		PPM:     int64(r.TaxPpm),
		Name:    r.TaxName,
		Country: r.TaxCountry,
		VATID:   r.TaxVatID,
		Reason:  tax.Reason(r.TaxReason),
	}
}

// taxLine returns how many cents of an invoice are its tax.
func taxLine(in stripe.Invoice) (cents int64) {
	for _, l := range in.Lines {
		if l.Ref == taxRef {
			cents += l.Cents
		}
	}
	return cents
}

// line returns the one that an invoice gets for its tax, or for the reason why the customer accounts for it.
func (b bill) line(currency string) (payment.BillLine, bool) {
	l := payment.BillLine{Ref: taxRef, Cents: b.tax.Cents}
	switch {
	case b.tax.Reason == tax.ReverseCharge:
		l.Description = tax.Note(b.tax.Reason, b.tax.Country)
	case b.tax.Cents == 0:
		return l, false
	default:
		l.Description = fmt.Sprintf("%s on %d.%02d %s", tax.Label(b.tax.Name, b.tax.PPM), b.taxed/100, b.taxed%100, currency)
	}
	return l, true
}

// bookTax books the tax of an invoice that is final now and was a draft, and takes it back of one that is void now. The
// org's row is locked and its invoice saved in this transaction, so each happens once.
func (p *Postpaid) bookTax(ctx context.Context, tx *db.Tx, a *acct, in stripe.Invoice, b bill, was string) error {
	if b.tax.Reason == "" {
		return nil
	}
	if was == stripe.InvoiceDraft {
		if err := p.recordTax(ctx, tx, a, in, b, tax.Invoice); err != nil {
			return err
		}
	}
	if in.Status == stripe.InvoiceVoid && was != stripe.InvoiceVoid {
		return p.recordTax(ctx, tx, a, in, b, tax.InvoiceVoid)
	}
	return nil
}

// recordTax books the tax of all of an invoice: that it is owed, or for kind tax.InvoiceVoid that it no longer is.
func (p *Postpaid) recordTax(ctx context.Context, tx *db.Tx, a *acct, in stripe.Invoice, b bill, kind tax.Kind) error {
	l := b.taxLineOf(a, in, kind, "tax_"+string(kind)+":"+in.ID)
	if l.Tax > 0 {
		t := ledger.Transfer{Debit: a.receivable(), Credit: ledger.TaxPayable(in.Currency), Amount: l.Tax}
		if kind == tax.InvoiceVoid {
			t.Debit, t.Credit = t.Credit, t.Debit
		}
		if _, err := a.locked.Post(ctx, ledger.Entry{
			Kind:      "tax_" + string(kind),
			Key:       l.Key,
			Ref:       a.row.OrgID.String(),
			Memo:      in.Number,
			Transfers: []ledger.Transfer{t},
		}); err != nil {
			return fmt.Errorf("book tax of invoice %s: %w", in.ID, err)
		}
	}
	if kind == tax.InvoiceVoid {
		l.Net, l.Tax = -l.Net, -l.Tax
	}
	return b.record(ctx, tx, l)
}

// taxLineOf returns the line of the tax book for all of an invoice.
func (b bill) taxLineOf(a *acct, in stripe.Invoice, kind tax.Kind, key string) tax.Line {
	return tax.Line{
		Key:      key,
		Org:      a.row.OrgID,
		Kind:     kind,
		Ref:      in.ID,
		Net:      money.Nano(b.taxed) * money.Cent,
		Tax:      b.tax.Amount(),
		Currency: in.Currency,
		Of:       b.tax,
	}
}

// record writes a line of an invoice whose tax was decided; others are not in the book.
func (b bill) record(ctx context.Context, tx *db.Tx, l tax.Line) error {
	if b.tax.Reason == "" {
		return nil
	}
	return tax.Record(ctx, tx, l)
}

// decide returns the bill with the tax that a draft bears. t is the tax that was determined for it before the
// transaction. An invoice that Stripe closed before it was seen, or one of nothing, bears none.
func (b bill) decide(in stripe.Invoice, t payment.BillTax) (bill, error) {
	switch {
	case in.Status != stripe.InvoiceDraft || b.due == 0:
		b.taxed = 0
	case t.Of.Reason == "" || t.Cents != b.taxed:
		return b, fmt.Errorf("invoice %s is taxed on %d cents, but the tax was determined on %d", in.ID, b.taxed, t.Cents)
	default:
		b.tax = t.Of
	}
	return b, nil
}

// redecide returns the bill of an invoice that is stored already: what was decided stands.
func (b bill) redecide(known dbq.PostpaidInvoice, in stripe.Invoice, t payment.BillTax) (bill, error) {
	switch {
	case known.TaxReason != "":
		return frozen(known, in), nil
	case in.Status != stripe.InvoiceDraft:
		return bill{charged: known.Charged, due: known.Due, taxed: known.TaxBase}, nil // what it was closed with
	}
	return b.decide(in, t)
}

// row returns how the invoice is stored.
func (b bill) row(org id.Org, in stripe.Invoice) dbq.SavePostpaidInvoiceParams {
	row := dbq.SavePostpaidInvoiceParams{
		ID:           in.ID,
		OrgID:        org,
		Currency:     in.Currency,
		Subscription: in.Subscription,
		Number:       in.Number,
		State:        in.Status,
		PeriodStart:  in.PeriodStart,
		PeriodEnd:    in.PeriodEnd,
		Charged:      b.charged,
		Due:          b.due,
		Total:        in.Total,
		Metered:      in.Metered,
		Paid:         in.AmountPaid,
		Attempts:     int32(in.Attempts),
		URL:          in.URL,
		MadeAt:       in.CreatedAt,
		Tax:          b.tax.Cents,
		TaxBase:      b.taxed,
		TaxPpm:       int32(b.tax.PPM),
		TaxName:      b.tax.Name,
		TaxReason:    string(b.tax.Reason),
		TaxCountry:   b.tax.Country,
		TaxVatID:     b.tax.VATID,
	}
	if !in.DueAt.IsZero() {
		row.DueAt = &in.DueAt
	}
	return row
}
