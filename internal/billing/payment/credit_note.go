package payment

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/stripe"
)

// CreditNote corrects the receipt of a payment, or an invoice, of which a part was given back or taken back by the
// card's bank. It is issued with the entry of the ledger that books this, and never changes.
type CreditNote = client.CreditNote

// creditTopup issues the credit note for a part of a top-up that went back (x.net and x.tax are negative), or, if a
// refund failed, the one that cancels the refund's credit note.
func (rs *Receipts) creditTopup(ctx context.Context, tx *db.Tx, t dbq.Topup, x taxEntry) error {
	c := CreditNote{
		Kind:     x.kind,
		Ref:      x.ref,
		TopUp:    &t.ID,
		Net:      -x.net,
		Tax:      ViewTax(taxOf(t), -x.tax),
		Currency: t.Currency,
	}
	d := document.Draft{Org: t.OrgID, Key: creditKey(x.key), Corrects: receiptKey(t.ID)}
	if x.kind == tax.RefundReturned {
		d.Corrects = creditKey("refund:" + x.ref + ":asked")
	}
	r, found, err := receiptContent(ctx, tx.Q, t.ID)
	gone := errors.Is(err, errErased)
	if err != nil && !gone {
		return err
	}
	if !found && !gone && t.PaymentIntentID != nil && t.SettledAt != nil { // paid before there were receipts
		if err := rs.issue(ctx, tx, t, *t.PaymentIntentID, *t.SettledAt); err != nil {
			return err
		}
		if r, _, err = receiptContent(ctx, tx.Q, t.ID); err != nil {
			return err
		}
	}
	c.Corrects, c.Merchant, c.Customer = r.Number, r.Merchant, r.Customer
	if c.Customer.Name == "" { // the receipt follows in this transaction
		if c.Customer, _, err = account.PartyOf(ctx, tx.Q, t.OrgID); err != nil {
			return err
		}
		c.Merchant = rs.merchant()
	}
	return rs.issueCredit(ctx, tx, d, c)
}

// merchant returns the merchant of record, with a list of address lines that is never nil.
func (rs *Receipts) merchant() account.Party {
	m := rs.cfg.Merchant
	m.Address = append([]string{}, m.Address...)
	return m
}

// creditInvoice issues the credit note for a refund of an invoice's payment that was made at Stripe, or cancels it. of
// is the invoice's tax; x.ref is the refund.
func (rs *Receipts) creditInvoice(ctx context.Context, tx *db.Tx, org id.Org, in stripe.Invoice, of tax.Tax,
	x taxEntry) error {
	customer, _, err := account.PartyOf(ctx, tx.Q, org)
	if err != nil {
		return err
	}
	d := document.Draft{Org: org, Key: creditKey(x.key)}
	if x.kind == tax.InvoiceRefundReturned {
		d.Corrects = creditKey("refund:" + x.ref)
	}
	return rs.issueCredit(ctx, tx, d, CreditNote{
		Corrects: in.Number,
		Kind:     x.kind,
		Ref:      x.ref,
		Merchant: rs.merchant(),
		Customer: customer,
		Net:      -x.net,
		Tax:      ViewTax(of, -x.tax),
		Currency: in.Currency,
	})
}

func (rs *Receipts) issueCredit(ctx context.Context, tx *db.Tx, d document.Draft, c CreditNote) error {
	c.Total, c.Sandbox = c.Net+c.Tax.Amount, rs.cfg.Sandbox
	if c.Total == 0 && c.Net == 0 {
		return nil
	}
	if c.Kind == tax.RefundReturned || c.Kind == tax.InvoiceRefundReturned {
		// A refund from before there were credit notes has none to be cancelled.
		if _, found, err := document.Find(ctx, tx.Q, d.Corrects); err != nil || !found {
			return err
		}
	}
	d.Series, d.Content = document.CreditNote, c
	return document.Issue(ctx, tx, d)
}

// creditKey returns the key, in the register of documents, of the credit note for an entry of the ledger.
func creditKey(entry string) string { return "credit_note:" + entry }

// CreditNotes lists the org's credit notes of a calendar year of issue (UTC), newest first. Fault: Invalid (the year).
func (rs *Receipts) CreditNotes(ctx context.Context, org id.Org, year string) ([]CreditNote, error) {
	return document.Year(ctx, rs.d.Q, org, document.CreditNote, year, creditOf)
}

// CreditNote returns one of the org's, by its number. Fault: NotFound.
func (rs *Receipts) CreditNote(ctx context.Context, org id.Org, number string) (CreditNote, error) {
	d, err := document.Get(ctx, rs.d.Q, org, document.CreditNote, number)
	if err != nil {
		return CreditNote{}, err
	}
	return creditOf(d)
}

func creditOf(d document.Issued) (c CreditNote, err error) {
	if err := json.Unmarshal(d.Content, &c); err != nil {
		return c, fmt.Errorf("credit note %s: %w", d.Number, err)
	}
	c.Number, c.IssuedAt = d.Number, d.IssuedAt
	switch {
	case c.Kind == tax.RefundReturned || c.Kind == tax.InvoiceRefundReturned:
		c.Cancels = d.Corrects
	case c.Corrects == "": // the receipt was issued in the same transaction
		c.Corrects = d.Corrects
	}
	return c, nil
}

// CreditNotesCSV writes credit notes as a table with a heading.
func CreditNotesCSV(w io.Writer, list []CreditNote) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"number", "issued", "corrects", "cancels", "kind", "customer", "vat_id", "net", "tax_percent",
		"tax", "tax_country", "total", "currency"}}
	for _, c := range list {
		rows = append(rows, []string{c.Number, c.IssuedAt.Format(time.DateOnly), c.Corrects, c.Cancels, string(c.Kind),
			c.Customer.Name, c.Customer.VATID,
			c.Net.String(), c.Tax.Percent, c.Tax.Amount.String(), c.Tax.Country, c.Total.String(), c.Currency})
	}
	return out.WriteAll(rows)
}
