package postpaid

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// BankPayment is a transfer to the platform's bank account, for what lost disputes of an invoice's payment left unpaid.
type BankPayment struct {
	Amount    money.Nano // whole cents
	Reference string     // as the bank's statement names the transfer: of an invoice, one is booked once
	Reason    string     // for the audit log
}

func (b *BankPayment) check() error {
	var bad fault.Fields
	if b.Amount <= 0 || b.Amount%money.Cent != 0 {
		bad.Add("amount", "must be above zero, in whole cents")
	}
	if b.Reference = strings.TrimSpace(b.Reference); b.Reference == "" || len(b.Reference) > 140 {
		bad.Add("reference", "must name the transfer in at most 140 bytes; each is booked once")
	}
	if b.Reason = strings.TrimSpace(b.Reason); b.Reason == "" || len(b.Reason) > 500 {
		bad.Add("reason", "must give the reason in at most 500 bytes; the audit log keeps it")
	}
	return bad.Err()
}

// BookBankPayment books that what lost disputes took of an invoice was paid to the platform's bank: first what is still
// owed of it, then what was given up, whose tax is owed again. It never books more than is unpaid, and each transfer
// once. An invoice without a dispute is marked as paid at Stripe instead. Only an admin may, with a reason for the
// audit log. Faults: Forbidden, NotFound, Invalid, Conflict (nothing was lost or is unpaid, or the transfer is booked
// with another amount).
func (p *Postpaid) BookBankPayment(ctx context.Context, who account.Principal, org id.Org, invoice string,
	b BankPayment,
	once idem.Request) (OrgInvoice, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return OrgInvoice{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, p.d, once, func(ctx context.Context, tx *db.Tx) (OrgInvoice, error) {
		if err := b.check(); err != nil {
			return OrgInvoice{}, err
		}
		l, err := p.lockInvoice(ctx, tx, org, invoice)
		if err != nil {
			return OrgInvoice{}, err
		}
		before, err := tx.Q.PostpaidBankPayment(ctx, invoice, b.Reference)
		switch {
		case db.NoRows(err):
			if err := p.bookBankPayment(ctx, tx, l, who, b); err != nil {
				return OrgInvoice{}, err
			}
		case err != nil:
			return OrgInvoice{}, fmt.Errorf("read bank payments of invoice %s: %w", invoice, err)
		case before != b.Amount:
			return OrgInvoice{}, fault.New(fault.Conflict, "this transfer is booked already, with %s", before.Plain())
		}
		return p.ofLost(ctx, tx, l.inv)
	})
}

// bookBankPayment books a transfer that is not booked yet, and notifies the org.
func (p *Postpaid) bookBankPayment(ctx context.Context, tx *db.Tx, l lockedInvoice, who account.Principal,
	b BankPayment) error {
	owed, err := l.lostOwed(ctx, tx.Q)
	if err != nil {
		return err
	}
	most := owed + lossOf(l.writeOff)
	switch {
	case most < money.Cent:
		return fault.New(fault.Conflict, "no lost dispute left a part of this invoice unpaid; an invoice without a "+
			"dispute is marked as paid at Stripe")
	case b.Amount > most:
		return fault.InvalidField("amount", "must be at most %s: no more is unpaid",
			(most / money.Cent * money.Cent).Plain())
	}
	waived := most - b.Amount
	if waived >= money.Cent {
		waived = 0 // it can still be paid
	}
	if err := tx.Q.InsertPostpaidBankPayment(ctx, dbq.InsertPostpaidBankPaymentParams{
		InvoiceID: l.inv.ID,
		Reference: b.Reference,
		OrgID:     l.inv.OrgID,
		Amount:    b.Amount,
		Waived:    waived,
		Reason:    b.Reason,
		UserID:    who.User,
	}); err != nil {
		return fmt.Errorf("insert bank payment of invoice %s: %w", l.inv.ID, err)
	}
	e := l.bankEntry(b, waived)
	if n := b.Amount + waived - owed; n > 0 {
		err = l.makeUp(ctx, tx, n, e)
	} else {
		err = l.acct.postNew(ctx, e)
	}
	if err != nil {
		return err
	}
	if err := p.wrapUp(ctx, tx, l.acct); err != nil {
		return err
	}
	if err := notifyBankPayment(ctx, tx, l.inv, b, e.Key); err != nil {
		return err
	}
	return audit.Record(ctx, tx, who.Event("billing.bank_payment", l.inv.OrgID.String(), map[string]any{
		"invoice":   l.inv.ID,
		"number":    l.inv.Number,
		"amount":    b.Amount.String(),
		"waived":    waived.String(),
		"reference": b.Reference,
		"reason":    b.Reason,
	}))
}

// lostOwed returns what lost disputes took of the invoice that is still owed, without what was given up.
func (l lockedInvoice) lostOwed(ctx context.Context, q *dbq.Queries) (money.Nano, error) {
	lost, err := lostOf(ctx, q, l.inv.OrgID)
	if err != nil {
		return 0, err
	}
	return max(0, min(lost[l.inv.ID].unpaid-lossOf(l.writeOff), l.acct.owed())), nil
}

// bankEntry returns the entry of a transfer to the platform's bank. waived is the rest below a cent, which no bank can
// transfer and which would be owed forever; 0 = none.
func (l lockedInvoice) bankEntry(b BankPayment, waived money.Nano) ledger.Entry {
	e := ledger.Entry{
		Kind: "dispute_paid",
		Key:  "dispute_paid:" + l.inv.ID + ":" + b.Reference,
		Ref:  l.inv.OrgID.String(),
		Memo: l.inv.Number + ", paid by bank after a dispute",
		Transfers: []ledger.Transfer{{
			Debit:  ledger.Bank(l.inv.Currency),
			Credit: l.acct.receivable(),
			Amount: b.Amount,
		}},
	}
	if waived > 0 {
		e.Transfers = append(e.Transfers, ledger.Transfer{
			Debit:  ledger.Goodwill(l.inv.Currency),
			Credit: l.acct.receivable(),
			Amount: waived,
		})
	}
	return e
}

// notifyBankPayment notifies the org that its transfer has arrived.
func notifyBankPayment(ctx context.Context, tx *db.Tx, r dbq.PostpaidInvoice, b BankPayment, key string) error {
	_, err := notify.Add(ctx, tx, notify.Notice{
		Org:      r.OrgID,
		Key:      key,
		Severity: notify.Info,
		Object:   r.OrgID.String(),
		Title:    fmt.Sprintf("Your transfer of %s %s has arrived", b.Amount.Plain(), r.Currency),
		Body:     "It pays what the dispute took back of invoice " + r.Number + ".",
	})
	return err
}

// ofLost returns an invoice as it stands with what lost disputes took of it.
func (p *Postpaid) ofLost(ctx context.Context, tx *db.Tx, r dbq.PostpaidInvoice) (OrgInvoice, error) {
	out := OrgInvoice{PostpaidInvoice: invoiceOf(r)}
	lost, err := lostOf(ctx, tx.Q, r.OrgID)
	if err != nil {
		return out, err
	}
	w, err := tx.Q.PostpaidWriteOff(ctx, r.ID)
	if err != nil && !db.NoRows(err) {
		return out, fmt.Errorf("read write-off of %s: %w", r.ID, err)
	}
	if err == nil {
		out.WriteOff = viewWriteOff(w)
	}
	lose(&out, lost[r.ID], w)
	return out, nil
}
