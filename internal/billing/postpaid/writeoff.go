package postpaid

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
)

// WriteOffState is how far the decision to give an invoice up has come.
type WriteOffState = client.WriteOffState

const (
	Requested = client.WriteOffRequested // decided; Stripe has yet to confirm it
	Refused   = client.WriteOffRefused   // by Stripe; it may be decided again
	// the invoice was paid or voided before Stripe received the request; nothing was written off
	Overtaken = client.WriteOffOvertaken
	Booked    = client.WriteOffBooked    // it is bad debt, and its tax is owed no more
	Recovered = client.WriteOffRecovered // it was paid after all
	Voided    = client.WriteOffVoided    // the invoice was taken back after all: what it billed is owed again
)

// WriteOff is an invoice that was given up.
type WriteOff = client.WriteOff

// OrgInvoice is an org's invoice as an admin sees it.
type OrgInvoice = client.OrgInvoice

// InvoicesOf returns an org's, newest first, at most limit, for an admin. Fault: Forbidden.
func (p *Postpaid) InvoicesOf(ctx context.Context, who account.Principal, org id.Org, limit int) ([]OrgInvoice, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	all, err := p.Invoices(ctx, org, limit)
	if err != nil {
		return nil, err
	}
	given, err := p.d.Q.ListPostpaidWriteOffs(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("read write-offs of %s: %w", org, err)
	}
	lost, err := lostOf(ctx, p.d.Q, org)
	if err != nil {
		return nil, err
	}
	out := make([]OrgInvoice, len(all))
	for i, in := range all {
		out[i].PostpaidInvoice = in
		lose(&out[i], lost[in.ID], dbq.PostpaidWriteoff{})
		for _, w := range given {
			if w.InvoiceID == in.ID {
				out[i].WriteOff = viewWriteOff(w)
				lose(&out[i], lost[in.ID], w)
			}
		}
	}
	return out, nil
}

func viewWriteOff(w dbq.PostpaidWriteoff) *WriteOff {
	return &WriteOff{
		State:     WriteOffState(w.State),
		Amount:    w.Amount,
		Tax:       w.Tax,
		Reason:    w.Reason,
		Failure:   w.Failure,
		DecidedAt: w.DecidedAt,
		BookedAt:  w.BookedAt,
		ClosedAt:  w.ClosedAt,
	}
}

// WriteOff gives up an invoice that the card did not pay: Stripe is asked to mark it as uncollectible, and what is owed
// of it becomes bad debt once Stripe confirms that. Nothing is lent until it is paid after all, which it may be. Of an
// invoice that was paid, WriteOff gives up what lost disputes left owed, at once. Only an admin may, with a reason of 1
// to 500 bytes for the audit log. Faults: Forbidden, NotFound, Invalid, Conflict (the invoice cannot be given up).
func (p *Postpaid) WriteOff(ctx context.Context, who account.Principal, org id.Org, invoice, reason string,
	once idem.Request) (OrgInvoice, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return OrgInvoice{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, p.d, once, func(ctx context.Context, tx *db.Tx) (OrgInvoice, error) {
		if reason = strings.TrimSpace(reason); reason == "" || len(reason) > 500 {
			return OrgInvoice{}, fault.InvalidField("reason", "must give the reason in at most 500 bytes; the audit log "+
				"keeps it")
		}
		l, err := p.lockInvoice(ctx, tx, org, invoice)
		if err != nil {
			return OrgInvoice{}, err
		}
		if !invoiceOf(l.inv).Failing {
			return p.writeOffLost(ctx, tx, l, who, reason)
		}
		return p.writeOffUnpaid(ctx, tx, l, who, reason)
	})
}

// writeOffUnpaid asks Stripe to mark an invoice that the card did not pay as uncollectible.
func (p *Postpaid) writeOffUnpaid(ctx context.Context, tx *db.Tx, l lockedInvoice, who account.Principal,
	reason string) (OrgInvoice, error) {
	out := OrgInvoice{PostpaidInvoice: invoiceOf(l.inv)}
	if l.writeOff.State == string(Requested) || l.writeOff.State == string(Booked) {
		return out, fault.New(fault.Conflict, "this invoice has already been written off")
	}
	w, err := tx.Q.AskPostpaidWriteOff(ctx, dbq.AskPostpaidWriteOffParams{
		InvoiceID: l.inv.ID,
		OrgID:     l.inv.OrgID,
		Reason:    reason,
		UserID:    who.User,
	})
	if err != nil {
		return out, fmt.Errorf("write off invoice %s: %w", l.inv.ID, err)
	}
	rows, err := p.pay.GiveUp(ctx, tx, l.inv.OrgID, l.inv.ID, int(w.Asked))
	if err != nil {
		return out, err
	}
	p.sendAfter(ctx, tx, rows)
	out.WriteOff = viewWriteOff(w)
	return out, audit.Record(ctx, tx, who.Event("billing.write_off", l.inv.OrgID.String(), map[string]any{
		"invoice": l.inv.ID, "number": l.inv.Number, "total": out.Total.String(), "reason": reason}))
}

// lockInvoice locks an org for an admin's act on one of its invoices, and reads the invoice. Fault: NotFound.
func (p *Postpaid) lockInvoice(ctx context.Context, tx *db.Tx, org id.Org, invoice string) (lockedInvoice, error) {
	missing := fault.New(fault.NotFound, "invoice not found")
	a, err := p.lock(ctx, tx, org, ledger.TaxPayable(p.cfg.Currency), ledger.BadDebt(p.cfg.Currency))
	if fault.Is(err, fault.NotFound) {
		return lockedInvoice{}, missing
	}
	if err != nil {
		return lockedInvoice{}, err
	}
	l := lockedInvoice{acct: a}
	l.inv, err = tx.Q.PostpaidInvoice(ctx, invoice)
	if err != nil && !db.NoRows(err) {
		return lockedInvoice{}, fmt.Errorf("read invoice %s: %w", invoice, err)
	}
	if err != nil || l.inv.OrgID != org {
		return lockedInvoice{}, missing
	}
	if l.writeOff, err = tx.Q.PostpaidWriteOff(ctx, invoice); err != nil && !db.NoRows(err) {
		return lockedInvoice{}, fmt.Errorf("read write-off of invoice %s: %w", invoice, err)
	}
	return l, nil
}

// bookEnd books once what became of an invoice that is final, whose row is saved and whose org is locked: its payment,
// or that it was given up. b is what it was made as, was its state before.
func (p *Postpaid) bookEnd(ctx context.Context, tx *db.Tx, a *acct, in stripe.Invoice, b bill, was string) error {
	w, err := tx.Q.PostpaidWriteOff(ctx, in.ID)
	if err != nil && !db.NoRows(err) {
		return fmt.Errorf("read write-off of %s: %w", in.ID, err)
	}
	booked, asked := w.State == string(Booked) && !w.Disputed, w.State == string(Requested)
	if in.Status == stripe.InvoiceVoid && booked {
		return p.voidWriteOff(ctx, tx, a, in, w)
	}
	if err := p.bookTax(ctx, tx, a, in, b, was); err != nil {
		return err
	}
	switch {
	case in.Status == stripe.InvoiceUncollectible && asked:
		return p.bookWriteOff(ctx, tx, a, in, b)
	case (in.Status == stripe.InvoicePaid || in.Status == stripe.InvoiceVoid) && asked:
		if err := closeWriteOff(ctx, tx, in.ID, Overtaken, ""); err != nil {
			return err
		}
	case in.Status == stripe.InvoicePaid && booked:
		return p.recover(ctx, tx, a, in, b, w)
	}
	if e, any := p.paidWith(a, in); any {
		if _, err := a.locked.Post(ctx, e); err != nil {
			return fmt.Errorf("book %s: %w", in.ID, err)
		}
	}
	return nil
}

// bookWriteOff moves what is owed of an invoice to bad debt; the tax of it was never received and is not owed.
func (p *Postpaid) bookWriteOff(ctx context.Context, tx *db.Tx, a *acct, in stripe.Invoice, b bill) error {
	owed := money.Nano(in.AmountDue-in.AmountPaid) * money.Cent
	if owed <= 0 {
		return fmt.Errorf("invoice %s is uncollectible, but %s of it is owed", in.ID, owed)
	}
	l := b.taxLineOf(a, in, tax.WrittenOff, "writeoff:"+in.ID)
	l.Tax = min(l.Tax, owed)
	e := ledger.Entry{
		Kind:      "invoice_writeoff",
		Key:       l.Key,
		Ref:       a.row.OrgID.String(),
		Memo:      in.Number + ", given up",
		Transfers: split(a.receivable(), false, owed, l.Tax),
	}
	if err := a.postNew(ctx, e); err != nil {
		return err
	}
	if err := tx.Q.BookPostpaidWriteOff(ctx, dbq.BookPostpaidWriteOffParams{
		InvoiceID: in.ID,
		Amount:    owed,
		Tax:       l.Tax,
		TaxBase:   l.Net,
	}); err != nil {
		return fmt.Errorf("write off %s: %w", in.ID, err)
	}
	l.Net, l.Tax = -l.Net, -l.Tax
	return b.record(ctx, tx, l)
}

// recover books the payment of an invoice that was written off: it makes up for the bad debt, and its tax is owed
// again.
func (p *Postpaid) recover(ctx context.Context, tx *db.Tx, a *acct, in stripe.Invoice, b bill,
	w dbq.PostpaidWriteoff) error {
	e, any := p.paidWith(a, in)
	if !any {
		return nil // no money came: it was settled with a credit note, which the ledger does not follow
	}
	from, came := e.Transfers[0].Debit, e.Transfers[0].Amount
	part := func(of money.Nano) money.Nano { // in proportion, should another amount have come than was given up
		return money.Nano(tax.Back(int64(of/money.Cent), int64(w.Amount/money.Cent), 0, int64(came/money.Cent),
			0)) * money.Cent
	}
	l := b.taxLineOf(a, in, tax.Recovered, e.Key)
	l.Net, l.Tax = part(w.TaxBase), part(w.Tax)
	e.Memo, e.Transfers = e.Memo+", after it was given up", split(from, true, came, l.Tax)
	if err := a.postNew(ctx, e); err != nil {
		return err
	}
	if err := closeWriteOff(ctx, tx, in.ID, Recovered, ""); err != nil {
		return err
	}
	return b.record(ctx, tx, l)
}

// voidWriteOff takes a write-off back whose invoice was voided: what it billed is owed again, and the next invoice
// bills it and its tax.
func (p *Postpaid) voidWriteOff(ctx context.Context, tx *db.Tx, a *acct, in stripe.Invoice,
	w dbq.PostpaidWriteoff) error {
	if n := w.Amount - w.Tax; n > 0 {
		e := ledger.Entry{
			Kind:      "invoice_writeoff_void",
			Key:       "writeoff_void:" + in.ID,
			Ref:       a.row.OrgID.String(),
			Memo:      in.Number + ", withdrawn",
			Transfers: []ledger.Transfer{{Debit: a.receivable(), Credit: ledger.BadDebt(in.Currency), Amount: n}},
		}
		if err := a.postNew(ctx, e); err != nil {
			return err
		}
	}
	return closeWriteOff(ctx, tx, in.ID, Voided, "")
}

// postNew books an entry that cannot be in the ledger, because its row does not have it: both change together.
func (a *acct) postNew(ctx context.Context, e ledger.Entry) error {
	switch booked, err := a.locked.Post(ctx, e); {
	case err != nil:
		return fmt.Errorf("book %s: %w", e.Key, err)
	case !booked:
		return fmt.Errorf("%s is in the ledger but not on its row", e.Key)
	}
	return nil
}

func closeWriteOff(ctx context.Context, tx *db.Tx, invoice string, state WriteOffState, failure string) error {
	if err := tx.Q.ClosePostpaidWriteOff(ctx, string(state), failure, invoice); err != nil {
		return fmt.Errorf("close write-off of %s: %w", invoice, err)
	}
	return nil
}

// split returns the transfers of a debt of amount, on of which is tax, between other and bad debt and tax_payable: it
// is given up (in is false), or arrives after all.
func split(other ledger.Account, in bool, amount, on money.Nano) (out []ledger.Transfer) {
	for _, x := range []ledger.Transfer{{
		Debit:  other,
		Credit: ledger.BadDebt(other.Currency),
		Amount: amount - on,
	}, {Debit: other, Credit: ledger.TaxPayable(other.Currency), Amount: on}} {
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

// refusedWriteOff applies that Stripe refuses to mark an invoice as uncollectible. It stays owed, and may be given up
// again.
func (p *Postpaid) refusedWriteOff(ctx context.Context, tx *db.Tx, invoice string, why *stripe.Error) error {
	r, err := tx.Q.PostpaidInvoice(ctx, invoice)
	if err != nil {
		return fmt.Errorf("read invoice %s: %w", invoice, err)
	}
	if _, err := p.lock(ctx, tx, r.OrgID); err != nil {
		return err
	}
	w, err := tx.Q.PostpaidWriteOff(ctx, invoice)
	if err != nil {
		return fmt.Errorf("read write-off of %s: %w", invoice, err)
	}
	if w.State != string(Requested) {
		return nil
	}
	if err := closeWriteOff(ctx, tx, invoice, Refused, why.Message); err != nil {
		return err
	}
	return notify.AddForAdmins(ctx, tx, notify.Notice{
		Key:      fmt.Sprintf("writeoff:%s:%d", invoice, w.Asked),
		Severity: notify.Bad,
		Object:   r.OrgID.String(),
		Title:    "Invoice " + r.Number + " could not be written off",
		Body:     "Stripe refuses it: " + why.Message + " Nothing was written off: see the invoice at Stripe.",
	})
}

// lockedInvoice is an invoice whose org is locked, with the write-off that was decided on before; the zero write-off
// if none was.
type lockedInvoice struct {
	acct     *acct
	inv      dbq.PostpaidInvoice
	writeOff dbq.PostpaidWriteoff
}
