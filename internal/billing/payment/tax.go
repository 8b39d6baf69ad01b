package payment

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
)

// Taxes determines what tax a payment bears, and keeps the book of it.
type Taxes struct {
	*core
	receipts *Receipts
}

// Tax is what tax a payment bears, for its payer.
type Tax = client.Tax

// Price is what paying in an amount costs.
type Price = client.Price

// Price returns, before anything is paid, what is charged for an amount paid in by the org. Faults: Invalid (the
// amount), Unavailable.
func (taxes *Taxes) Price(ctx context.Context, org id.Org, amount money.Nano) (Price, error) {
	if err := checkAmount(amount); err != nil {
		return Price{}, err
	}
	t, err := taxes.on(ctx, org, tax.TopUp, amount)
	if err != nil {
		return Price{}, err
	}
	return Price{
		Amount:   amount,
		Tax:      ViewTax(t, t.Amount()),
		Total:    amount + t.Amount(),
		Currency: taxes.cfg.Currency,
	}, nil
}

// on returns the tax on an amount that the org pays in now, or is invoiced. Call it outside of transactions: the
// Taxer may be asked over a network.
func (taxes *Taxes) on(ctx context.Context, org id.Org, kind tax.Kind, amount money.Nano) (tax.Tax, error) {
	legal, err := account.LegalOf(ctx, taxes.d.Q, org)
	if err != nil {
		return tax.Tax{}, err
	}
	t, err := taxes.cfg.Taxer.Tax(ctx, tax.Sale{
		Kind:     kind,
		Country:  legal.Country,
		VATID:    legal.VATID,
		Cents:    int64(amount / money.Cent),
		Currency: taxes.cfg.Currency,
	})
	if err != nil {
		return t, fault.Wrap(err, fault.Unavailable, "the tax cannot be worked out now: nothing was charged; try again in "+
			"a minute")
	}
	if t.Cents < 0 || t.Reason == "" {
		return t, fmt.Errorf("a tax of %d cents for %q on %s of %s", t.Cents, t.Reason, amount, org)
	}
	return t, nil
}

// taxEntry is what an entry of the ledger moved of a payment, with its tax.
type taxEntry struct {
	kind tax.Kind
	key  string     // of the entry
	ref  string     // id of the top-up or refund
	net  money.Nano // negative: it went back
	tax  money.Nano // with the sign of net
}

// taxOf returns the tax that was decided for a top-up.
func taxOf(t dbq.Topup) tax.Tax {
	return tax.Tax{
		Cents:   int64(t.Tax / money.Cent),
		PPM:     int64(t.TaxPpm),
		Name:    t.TaxName,
		Country: t.TaxCountry,
		VATID:   t.TaxVatID,
		Reason:  tax.Reason(t.TaxReason),
	}
}

// ViewTax returns a tax that comes to an amount, for its payer.
func ViewTax(t tax.Tax, amount money.Nano) Tax {
	return Tax{
		Amount:  amount,
		Percent: tax.Percent(t.PPM),
		Name:    t.Name,
		Country: t.Country,
		Reason:  t.Reason,
		Note:    tax.Note(t.Reason, t.Country),
	}
}

// record writes a line of the tax book for a top-up, and the credit note for what goes back of it, in the
// transaction that posts the entry. Payments made before there were taxes are not in the book.
func (taxes *Taxes) record(ctx context.Context, tx *db.Tx, t dbq.Topup, x taxEntry) error {
	if x.kind != tax.TopUp {
		if err := taxes.receipts.creditTopup(ctx, tx, t, x); err != nil {
			return err
		}
	}
	if t.TaxReason == "" {
		return nil
	}
	return tax.Record(ctx, tx, tax.Line{
		Key:      x.key,
		Org:      t.OrgID,
		Kind:     x.kind,
		Ref:      x.ref,
		Net:      x.net,
		Tax:      x.tax,
		Currency: t.Currency,
		Of:       taxOf(t),
	})
}

// withTax returns a transfer of the net amount and, if there is any, one of the tax on it. in: other is debited, and
// wallet and tax_payable are credited; otherwise the reverse.
func withTax(other, wallet ledger.Account, in bool, net, amount money.Nano) []ledger.Transfer {
	var out []ledger.Transfer
	for _, x := range []ledger.Transfer{{
		Debit:  other,
		Credit: wallet,
		Amount: net,
	}, {Debit: other, Credit: ledger.TaxPayable(wallet.Currency), Amount: amount}} {
		if x.Amount == 0 {
			continue
		}
		if !in {
			x.Debit, x.Credit = x.Credit, x.Debit
		}
		out = append(out, x)
	}
	return out
}

// taxBack returns how much of a payment's tax goes back with the next part of it; in nano-units of whole cents.
func taxBack(whole, charged, before, part, gone money.Nano) money.Nano {
	c := func(n money.Nano) int64 { return int64(n / money.Cent) }
	return money.Nano(tax.Back(c(charged), c(whole), c(before), c(part), c(gone))) * money.Cent
}

// taxOfPart returns how much of the next part of an invoice's payment is tax, if before, and gone of its tax, went back
// already; all but of include tax. Nano-units of whole cents.
func taxOfPart(in stripe.Invoice, of tax.Tax, before, part, gone money.Nano) money.Nano {
	if in.Total <= 0 {
		return 0
	}
	return min(part, taxBack(money.Nano(in.Total)*money.Cent, of.Amount(), before, part, gone))
}
