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
	// unpaid is what the banks took, less what was set aside and paid it, and what was paid by bank since; whether or not
	// it was written off. Below zero is what came too much: the bank gave again what somebody had paid.
	unpaid money.Nano
	banked money.Nano // what came to the platform's bank account for it
}

// lostOf is what lost disputes of the payments of an org's invoices took, by invoice.
func lostOf(ctx context.Context, q *dbq.Queries, org id.Org) (map[string]loss, error) {
	rows, err := q.PostpaidLost(ctx, org.String(), org)
	if err != nil {
		return nil, fmt.Errorf("postpaid: lost disputes of %s: %w", org, err)
	}
	out := make(map[string]loss, len(rows))
	for _, r := range rows {
		out[r.InvoiceID] = loss{money.Nano(r.Unpaid), money.Nano(r.Banked)}
	}
	return out, nil
}

// lose fills in what lost disputes took of an invoice of which w was decided.
func (in *OrgInvoice) lose(l loss, w dbq.PostpaidWriteoff) {
	in.LostUnpaid, in.PaidByBank, in.Lost = max(0, l.unpaid), l.banked, max(0, l.unpaid-lossOf(w))
}

// lossOf is what of that is written off.
func lossOf(w dbq.PostpaidWriteoff) money.Nano {
	if w.Disputed && w.State == string(Booked) {
		return w.Amount
	}
	return 0
}

// writeOffLost gives up what lost disputes left owed of an invoice that is paid at Stripe: there is nothing to tell
// Stripe, so it is booked at once, with as much of the invoice's tax as went back with it.
func (p *Postpaid) writeOffLost(ctx context.Context, tx *db.Tx, a *acct, who account.Principal, r dbq.PostpaidInvoice,
	was dbq.PostpaidWriteoff, reason string) (OrgInvoice, error) {
	out := OrgInvoice{CreditInvoice: invoiceOf(r)}
	lost, err := lostOf(ctx, tx.Q, r.OrgID)
	if err != nil {
		return out, err
	}
	before := lossOf(was)
	n := min(lost[r.ID].unpaid-before, a.owed())
	switch {
	case n <= 0 && before > 0:
		return out, fault.New(fault.Conflict, "what the bank took back of this invoice has been given up already")
	case n <= 0:
		return out, fault.New(fault.Conflict, "only an invoice that the card did not pay can be given up, or what a lost "+
			"dispute left of one; this one is %s", r.State)
	}
	given, err := tx.Q.InvoiceRefunded(ctx, r.ID)
	if err != nil {
		return out, fmt.Errorf("postpaid: refunds of %s: %w", r.ID, err)
	}
	of, gone, back := taxOf(r), money.Nano(given.Amount)+before, money.Nano(given.Tax)
	if before > 0 {
		back += was.Tax
	}
	on := min(n, taxPart(of.Amount(), out.Total, gone, n, back))
	set := dbq.BookPostpaidLostParams{
		InvoiceID: r.ID,
		OrgID:     r.OrgID,
		Reason:    reason,
		UserID:    who.User,
		Amount:    n,
		Tax:       on,
		TaxBase:   n - on,
	}
	if before > 0 {
		set.Amount, set.Tax, set.TaxBase = set.Amount+was.Amount, set.Tax+was.Tax, set.TaxBase+was.TaxBase
	}
	w, err := tx.Q.BookPostpaidLost(ctx, set)
	if err != nil {
		return out, fmt.Errorf("postpaid: write off %s: %w", r.ID, err)
	}
	e := ledger.Entry{
		Kind:      "dispute_writeoff",
		Key:       fmt.Sprintf("writeoff_lost:%s:%d", r.ID, w.Asked),
		Ref:       r.OrgID.String(),
		Memo:      r.Number + ", taken back and given up",
		Transfers: split(a.receivable(), false, n, on),
	}
	if err := a.postNew(ctx, e); err != nil {
		return out, err
	}
	l := tax.Line{
		Key:      e.Key,
		Org:      r.OrgID,
		Kind:     tax.WrittenOff,
		Ref:      r.ID,
		Net:      on - n,
		Tax:      -on,
		Currency: r.Currency,
		Of:       of,
	}
	if err := (bill{tax: of}).record(ctx, tx, l); err != nil {
		return out, err
	}
	if err := p.wrapUp(ctx, tx, a); err != nil {
		return out, err
	}
	out.WriteOff = viewWriteOff(w)
	out.lose(lost[r.ID], w)
	return out, audit.Record(ctx, tx, who.Event("billing.write_off", r.OrgID.String(), map[string]any{
		"invoice": r.ID, "number": r.Number, "total": out.Total.String(), "disputed": n.String(), "reason": reason}))
}

// regain makes up for what was written off of a lost dispute whose money the bank gave again after all; its tax is owed
// again.
func (p *Postpaid) regain(ctx context.Context, tx *db.Tx, a *acct, r dbq.PostpaidInvoice) error {
	w, err := tx.Q.PostpaidWriteOff(ctx, r.ID)
	if db.NoRows(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("postpaid: write-off of %s: %w", r.ID, err)
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
	return p.makeUp(ctx, tx, a, r, w, n, ledger.Entry{
		Kind: "dispute_recovered",
		Key:  fmt.Sprintf("writeoff_back:%s:%d:%d", r.ID, w.Asked, w.Amount),
		Ref:  r.OrgID.String(),
		Memo: r.Number + ", came after it was given up",
	})
}

// makeUp books e, and that n of what it moves into the receivable makes up for what was written off; its tax is owed
// again.
func (p *Postpaid) makeUp(ctx context.Context, tx *db.Tx, a *acct, r dbq.PostpaidInvoice, w dbq.PostpaidWriteoff,
	n money.Nano, e ledger.Entry) error {
	of := taxOf(r)
	on := min(n, taxPart(w.Tax, w.Amount, 0, n, 0))
	e.Transfers = append(e.Transfers, split(a.receivable(), true, n, on)...)
	if err := a.postNew(ctx, e); err != nil {
		return err
	}
	if n == w.Amount {
		if err := closeWriteOff(ctx, tx, r.ID, Recovered, ""); err != nil {
			return err
		}
	} else if err := tx.Q.ReducePostpaidWriteOff(ctx, dbq.ReducePostpaidWriteOffParams{
		Amount:    w.Amount - n,
		Tax:       w.Tax - on,
		TaxBase:   w.TaxBase - (n - on),
		InvoiceID: r.ID,
	}); err != nil {
		return fmt.Errorf("postpaid: write-off of %s: %w", r.ID, err)
	}
	return (bill{tax: of}).record(ctx, tx, tax.Line{
		Key:      e.Key,
		Org:      r.OrgID,
		Kind:     tax.Recovered,
		Ref:      r.ID,
		Net:      n - on,
		Tax:      on,
		Currency: r.Currency,
		Of:       of,
	})
}

// taxPart is how much of the tax on whole goes with the next part of it, in whole cents; before went already, and gone
// of the tax.
func taxPart(on, whole, before, part, gone money.Nano) money.Nano {
	c := func(n money.Nano) int64 { return int64(n / money.Cent) }
	return money.Nano(tax.Back(c(on), c(whole), c(before), c(part), c(gone))) * money.Cent
}
