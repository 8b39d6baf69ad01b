package postpaid

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// loss is what lost disputes of an invoice's payment took.
type loss struct {
	// unpaid is what the banks took, less what was set aside and paid it, and what was paid by bank since, whether or not
	// it was written off. Below zero is what came too much: the bank returned what had been paid otherwise.
	unpaid money.Nano
	banked money.Nano // what came to the platform's bank account for it
}

// lostOf returns what lost disputes of the payments of an org's invoices took, by invoice.
func lostOf(ctx context.Context, q *dbq.Queries, org id.Org) (map[string]loss, error) {
	rows, err := q.PostpaidLost(ctx, org.String(), org)
	if err != nil {
		return nil, fmt.Errorf("read lost disputes of %s: %w", org, err)
	}
	out := make(map[string]loss, len(rows))
	for _, r := range rows {
		out[r.InvoiceID] = loss{money.Nano(r.Unpaid), money.Nano(r.Banked)}
	}
	return out, nil
}

// lose fills in what lost disputes took of an invoice of which w was decided.
func lose(in *OrgInvoice, l loss, w dbq.PostpaidWriteoff) {
	in.LostUnpaid, in.PaidByBank, in.Lost = max(0, l.unpaid), l.banked, max(0, l.unpaid-lossOf(w))
}

// lossOf returns what of that is written off.
func lossOf(w dbq.PostpaidWriteoff) money.Nano {
	if w.Disputed && w.State == string(Booked) {
		return w.Amount
	}
	return 0
}

// writeOffLost gives up what lost disputes left owed of an invoice that is paid at Stripe. Stripe need not be notified,
// so it is booked at once, with as much of the invoice's tax as went back with it.
func (p *Postpaid) writeOffLost(ctx context.Context, tx *db.Tx, l lockedInvoice, who account.Principal,
	reason string) (OrgInvoice, error) {
	out := OrgInvoice{PostpaidInvoice: invoiceOf(l.inv)}
	lost, err := lostOf(ctx, tx.Q, l.inv.OrgID)
	if err != nil {
		return out, err
	}
	before := lossOf(l.writeOff)
	n := min(lost[l.inv.ID].unpaid-before, l.acct.owed())
	switch {
	case n <= 0 && before > 0:
		return out, fault.New(fault.Conflict, "what the bank took back of this invoice has already been written off")
	case n <= 0:
		return out, fault.New(fault.Conflict, "only an invoice that the card did not pay, or the part of one that a lost "+
			"dispute took back, can be written off; this one is %s", l.inv.State)
	}
	on, err := l.taxOfLost(ctx, tx.Q, n)
	if err != nil {
		return out, err
	}
	w, err := l.bookLost(ctx, tx, dbq.BookPostpaidLostParams{
		InvoiceID: l.inv.ID,
		OrgID:     l.inv.OrgID,
		Reason:    reason,
		UserID:    who.User,
		Amount:    n,
		Tax:       on,
		TaxBase:   n - on,
	})
	if err != nil {
		return out, err
	}
	if err := p.wrapUp(ctx, tx, l.acct); err != nil {
		return out, err
	}
	out.WriteOff = viewWriteOff(w)
	lose(&out, lost[l.inv.ID], w)
	return out, audit.Record(ctx, tx, who.Event("billing.write_off", l.inv.OrgID.String(), map[string]any{
		"invoice": l.inv.ID, "number": l.inv.Number, "total": out.Total.String(), "disputed": n.String(),
		"reason": reason}))
}

// taxOfLost returns how much of n, which lost disputes left owed, is the invoice's tax.
func (l lockedInvoice) taxOfLost(ctx context.Context, q *dbq.Queries, n money.Nano) (money.Nano, error) {
	given, err := q.InvoiceRefunded(ctx, l.inv.ID)
	if err != nil {
		return 0, fmt.Errorf("read refunds of invoice %s: %w", l.inv.ID, err)
	}
	before := lossOf(l.writeOff)
	gone, back := money.Nano(given.Amount)+before, money.Nano(given.Tax)
	if before > 0 {
		back += l.writeOff.Tax
	}
	return min(n, taxPart(taxOf(l.inv).Amount(), invoiceOf(l.inv).Total, gone, n, back)), nil
}

// bookLost moves what lost disputes left owed to bad debt and stores the write-off, to which it adds what was written
// off of such disputes before.
func (l lockedInvoice) bookLost(ctx context.Context, tx *db.Tx,
	more dbq.BookPostpaidLostParams) (dbq.PostpaidWriteoff, error) {
	n, on, set := more.Amount, more.Tax, more
	if lossOf(l.writeOff) > 0 {
		set.Amount += l.writeOff.Amount
		set.Tax += l.writeOff.Tax
		set.TaxBase += l.writeOff.TaxBase
	}
	w, err := tx.Q.BookPostpaidLost(ctx, set)
	if err != nil {
		return w, fmt.Errorf("write off invoice %s: %w", l.inv.ID, err)
	}
	e := ledger.Entry{
		Kind:      "dispute_writeoff",
		Key:       fmt.Sprintf("writeoff_lost:%s:%d", l.inv.ID, w.Asked),
		Ref:       l.inv.OrgID.String(),
		Memo:      l.inv.Number + ", taken back and given up",
		Transfers: split(l.acct.receivable(), false, n, on),
	}
	if err := l.acct.postNew(ctx, e); err != nil {
		return w, err
	}
	return w, l.recordTax(ctx, tx, e.Key, tax.WrittenOff, on-n, -on)
}

// recordTax writes a line of the tax book for a part of the invoice, if its tax was decided.
func (l lockedInvoice) recordTax(ctx context.Context, tx *db.Tx, key string, kind tax.Kind, net, on money.Nano) error {
	of := taxOf(l.inv)
	return (bill{tax: of}).record(ctx, tx, tax.Line{
		Key:      key,
		Org:      l.inv.OrgID,
		Kind:     kind,
		Ref:      l.inv.ID,
		Net:      net,
		Tax:      on,
		Currency: l.inv.Currency,
		Of:       of,
	})
}

// regain reverses the write-off of a lost dispute as far as the bank returned the money after all; its tax is owed
// again.
func (p *Postpaid) regain(ctx context.Context, tx *db.Tx, a *acct, r dbq.PostpaidInvoice) error {
	w, err := tx.Q.PostpaidWriteOff(ctx, r.ID)
	if db.NoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read write-off of invoice %s: %w", r.ID, err)
	}
	if lossOf(w) == 0 {
		return nil
	}
	lost, err := lostOf(ctx, tx.Q, r.OrgID)
	if err != nil {
		return err
	}
	n := min(w.Amount-lost[r.ID].unpaid, w.Amount)
	if n <= 0 {
		return nil
	}
	return lockedInvoice{acct: a, inv: r, writeOff: w}.makeUp(ctx, tx, n, ledger.Entry{
		Kind: "dispute_recovered",
		Key:  fmt.Sprintf("writeoff_back:%s:%d:%d", r.ID, w.Asked, w.Amount),
		Ref:  r.OrgID.String(),
		Memo: r.Number + ", came after it was given up",
	})
}

// makeUp books e with n added to it, which makes up for as much of the write-off; the tax on it is owed again.
func (l lockedInvoice) makeUp(ctx context.Context, tx *db.Tx, n money.Nano, e ledger.Entry) error {
	w := l.writeOff
	on := min(n, taxPart(w.Tax, w.Amount, 0, n, 0))
	e.Transfers = append(e.Transfers, split(l.acct.receivable(), true, n, on)...)
	if err := l.acct.postNew(ctx, e); err != nil {
		return err
	}
	if n == w.Amount {
		if err := closeWriteOff(ctx, tx, l.inv.ID, Recovered, ""); err != nil {
			return err
		}
	} else if err := tx.Q.ReducePostpaidWriteOff(ctx, dbq.ReducePostpaidWriteOffParams{
		Amount:    w.Amount - n,
		Tax:       w.Tax - on,
		TaxBase:   w.TaxBase - (n - on),
		InvoiceID: l.inv.ID,
	}); err != nil {
		return fmt.Errorf("reduce write-off of invoice %s: %w", l.inv.ID, err)
	}
	return l.recordTax(ctx, tx, e.Key, tax.Recovered, n-on, on)
}

// taxPart returns how much of the tax on whole goes with the next part of it, in whole cents; before went already, and
// gone of the tax.
func taxPart(on, whole, before, part, gone money.Nano) money.Nano {
	c := func(n money.Nano) int64 { return int64(n / money.Cent) }
	return money.Nano(tax.Back(c(on), c(whole), c(before), c(part), c(gone))) * money.Cent
}
