package payment

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Receipts issues and returns the receipts of payments, and the credit notes that correct them.
type Receipts struct{ *core }

// Receipt is for one payment into a wallet. It is written with the payment's entry and never changed: it names both
// parties as they were then. Only Returned and Left are of now.
type Receipt = client.Receipt

// Returned is a part of a payment that went back, with the tax on it.
type Returned = client.Returned

// issue writes the receipt of a payment that arrived at paidAt, with the parties as they are now. A receipt that exists
// stands.
func (rs *Receipts) issue(ctx context.Context, tx *db.Tx, t dbq.Topup, payment string, paidAt time.Time) error {
	customer, told, err := account.PartyOf(ctx, tx.Q, t.OrgID)
	if err != nil {
		return err
	}
	content, err := json.Marshal(Receipt{
		TopUp:         t.ID,
		PaidAt:        paidAt.UTC(),
		Merchant:      rs.merchant(),
		Customer:      customer,
		CustomerKnown: told,
		What:          what,
		Net:           t.Amount,
		Tax:           ViewTax(taxOf(t), t.Tax),
		Total:         t.Amount + t.Tax,
		Currency:      t.Currency,
		Payment:       payment,
		Automatic:     t.Automatic,
		Sandbox:       rs.cfg.Sandbox,
	})
	if err != nil {
		return err
	}
	n, err := tx.Q.IssueReceipt(ctx, t.ID, content)
	if err != nil {
		return fmt.Errorf("issue receipt of %s: %w", t.ID, err)
	}
	if n == 0 {
		return nil
	}
	return document.Issue(ctx, tx, document.Draft{
		Series:  document.Receipt,
		Org:     t.OrgID,
		Key:     receiptKey(t.ID),
		Content: struct{}{},
	})
}

// erased is the content of a document whose retention is over.
const erased = `{"erased": true}`

var errErased = fault.New(fault.NotFound, "the document was erased when its retention was over")

// receiptKey returns the receipt's key in the register of documents.
func receiptKey(t id.TopUp) string { return "receipt:" + t.String() }

// receiptContent returns a receipt as it was issued, with its number. found is false when there is none.
func receiptContent(ctx context.Context, q *dbq.Queries, topup id.TopUp) (r Receipt, found bool, err error) {
	row, err := q.Receipt(ctx, topup)
	if db.NoRows(err) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(row.Content, &r)
	}
	if err != nil {
		return r, false, fmt.Errorf("read receipt of %s: %w", topup, err)
	}
	r.IssuedAt = row.IssuedAt.UTC()
	if string(row.Content) == erased {
		return r, false, errErased
	}
	if r.Number != "" { // issued before there was a series
		return r, true, nil
	}
	d, ok, err := document.Find(ctx, q, receiptKey(topup))
	if err != nil {
		return r, false, err
	}
	if ok {
		r.Number, r.IssuedAt = d.Number, d.IssuedAt
	}
	return r, true, nil
}

// Get returns the receipt of one of the org's payments, with what went back of it since. Faults: NotFound, Conflict
// (nothing was paid).
func (rs *Receipts) Get(ctx context.Context, org id.Org, topup id.TopUp) (Receipt, error) {
	t, err := rs.d.Q.Topup(ctx, topup)
	if err != nil && !db.NoRows(err) {
		return Receipt{}, fmt.Errorf("read top-up %s: %w", topup, err)
	}
	if err != nil || t.OrgID != org {
		return Receipt{}, fault.New(fault.NotFound, "payment not found")
	}
	if State(t.State) != Succeeded || t.SettledAt == nil || t.PaymentIntentID == nil {
		return Receipt{}, fault.New(fault.Conflict, "there is no receipt: nothing was paid")
	}
	r, found, err := receiptContent(ctx, rs.d.Q, topup)
	if err == nil && !found { // paid before receipts were written with the payment
		if err := rs.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			return rs.issue(ctx, tx, t, *t.PaymentIntentID, *t.SettledAt)
		}); err != nil {
			return Receipt{}, err
		}
		r, _, err = receiptContent(ctx, rs.d.Q, topup)
	}
	if err != nil {
		return Receipt{}, err
	}
	rows, err := rs.d.Q.ReturnedOfTopup(ctx, topup)
	if err != nil {
		return Receipt{}, fmt.Errorf("read returned of %s: %w", topup, err)
	}
	r.Left, r.Returned = r.Total, []Returned{}
	for _, x := range rows {
		r.Returned = append(r.Returned, Returned{
			At:    x.At.UTC(),
			Kind:  tax.Kind(x.Kind),
			State: State(x.State),
			Net:   x.Amount,
			Tax:   x.Tax,
			Total: x.Amount + x.Tax,
		})
		r.Left -= x.Amount + x.Tax
	}
	return r, nil
}
