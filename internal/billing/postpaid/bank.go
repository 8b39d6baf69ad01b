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
	Reason    string     // for the audit trail
}

func (b *BankPayment) check() error {
	var bad fault.Fields
	if b.Amount <= 0 || b.Amount%money.Cent != 0 {
		bad.Add("amount", "must be above zero, in whole cents")
	}
	if b.Reference = strings.TrimSpace(b.Reference); b.Reference == "" || len(b.Reference) > 140 {
		bad.Add("reference", "says which transfer it was, in at most 140 bytes: one is booked once")
	}
	if b.Reason = strings.TrimSpace(b.Reason); b.Reason == "" || len(b.Reason) > 500 {
		bad.Add("reason", "says why, in at most 500 bytes: the audit trail keeps it")
	}
	return bad.Err()
}

// BookBankPayment books that what lost disputes took of an invoice was paid to the platform's bank: first what is still
// owed of it, then what was given up, whose tax is owed again. Never more is booked than is unpaid. The same transfer
// again changes nothing. An invoice that nobody disputed is marked as paid at Stripe instead. Only a platform operator
// may, with a reason for the audit trail. Faults: Forbidden, NotFound, Invalid, Conflict (nothing was lost or is
// unpaid; the transfer is booked with another amount).
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
		a, r, w, err := p.decideOn(ctx, tx, org, invoice)
		if err != nil {
			return OrgInvoice{}, err
		}
		before, err := tx.Q.PostpaidBankPayment(ctx, invoice, b.Reference)
		switch {
		case err != nil && !db.NoRows(err):
			return OrgInvoice{}, fmt.Errorf("postpaid: paid by bank of %s: %w", invoice, err)
		case err == nil && before != b.Amount:
			return OrgInvoice{}, fault.New(fault.Conflict, "this transfer is booked already, with %s", before.Plain())
		case err == nil:
			return p.ofLost(ctx, tx, r)
		}
		lost, err := lostOf(ctx, tx.Q, org)
		if err != nil {
			return OrgInvoice{}, err
		}
		given := lossOf(w)
		owed := max(0, min(lost[invoice].unpaid-given, a.owed()))
		most := owed + given
		switch {
		case most < money.Cent:
			return OrgInvoice{}, fault.New(fault.Conflict, "no lost dispute left anything of this invoice unpaid; one that "+
				"nobody disputed is marked as paid at Stripe")
		case b.Amount > most:
			return OrgInvoice{}, fault.InvalidField("amount", "must be at most %s: no more is unpaid",
				(most / money.Cent * money.Cent).Plain())
		}
		set := dbq.InsertPostpaidBankPaymentParams{
			InvoiceID: invoice,
			Reference: b.Reference,
			OrgID:     org,
			Amount:    b.Amount,
			Reason:    b.Reason,
			UserID:    who.User,
		}
		e := ledger.Entry{
			Kind:      "dispute_paid",
			Key:       "dispute_paid:" + invoice + ":" + b.Reference,
			Ref:       org.String(),
			Memo:      r.Number + ", paid by bank after a dispute",
			Transfers: []ledger.Transfer{{Debit: ledger.Bank(r.Currency), Credit: a.receivable(), Amount: b.Amount}},
		}
		if rest := most - b.Amount; rest > 0 && rest < money.Cent { // no bank moves it, and it would be owed for ever
			set.Waived = rest
			e.Transfers = append(e.Transfers, ledger.Transfer{
				Debit:  ledger.Goodwill(r.Currency),
				Credit: a.receivable(),
				Amount: rest,
			})
		}
		if err := tx.Q.InsertPostpaidBankPayment(ctx, set); err != nil {
			return OrgInvoice{}, fmt.Errorf("postpaid: paid by bank of %s: %w", invoice, err)
		}
		if n := set.Amount + set.Waived - owed; n > 0 {
			err = p.makeUp(ctx, tx, a, r, w, n, e)
		} else {
			err = a.postNew(ctx, e)
		}
		if err != nil {
			return OrgInvoice{}, err
		}
		if err := p.wrapUp(ctx, tx, a); err != nil {
			return OrgInvoice{}, err
		}
		if _, err := notify.Add(ctx, tx, notify.Notice{
			Org:      org,
			Key:      e.Key,
			Severity: notify.Info,
			Object:   org.String(),
			Title:    fmt.Sprintf("Your transfer of %s %s has arrived", b.Amount.Plain(), r.Currency),
			Body:     "It pays what the dispute took of invoice " + r.Number + ".",
		}); err != nil {
			return OrgInvoice{}, err
		}
		if err := audit.Record(ctx, tx, who.Event("billing.bank_payment", org.String(), map[string]any{
			"invoice":   invoice,
			"number":    r.Number,
			"amount":    b.Amount.String(),
			"waived":    set.Waived.String(),
			"reference": b.Reference,
			"reason":    b.Reason,
		})); err != nil {
			return OrgInvoice{}, err
		}
		return p.ofLost(ctx, tx, r)
	})
}

// ofLost is an invoice as it stands with what lost disputes took of it.
func (p *Postpaid) ofLost(ctx context.Context, tx *db.Tx, r dbq.PostpaidInvoice) (OrgInvoice, error) {
	out := OrgInvoice{CreditInvoice: invoiceOf(r)}
	lost, err := lostOf(ctx, tx.Q, r.OrgID)
	if err != nil {
		return out, err
	}
	w, err := tx.Q.PostpaidWriteOff(ctx, r.ID)
	if err != nil && !db.NoRows(err) {
		return out, fmt.Errorf("postpaid: write-off of %s: %w", r.ID, err)
	}
	if err == nil {
		out.WriteOff = viewWriteOff(w)
	}
	out.lose(lost[r.ID], w)
	return out, nil
}
