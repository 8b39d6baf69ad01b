package api

import (
	"context"
	"net/http"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// documentsAPI answers the routes of receipts, credit notes and self-billing documents.
type documentsAPI struct {
	payments   *payment.Payments
	payouts    *payout.Payouts
	statements *statement.Statements
}

type documentInput struct {
	Number string `path:"number" doc:"such as C-2026-000001"`
}

func (a documentsAPI) listCreditNotes(ctx context.Context, p account.Principal,
	in *client.DocumentYear) (list[payment.CreditNote], error) {
	rows, err := a.payments.Receipts.CreditNotes(ctx, p.Org, in.Year)
	return list[payment.CreditNote]{Items: rows}, err
}

func (a documentsAPI) getCreditNote(ctx context.Context, p account.Principal,
	in *documentInput) (payment.CreditNote, error) {
	return a.payments.Receipts.CreditNote(ctx, p.Org, in.Number)
}

func (a documentsAPI) creditNotesCSV(w http.ResponseWriter, r *http.Request, p account.Principal,
	in *client.DocumentYear) error {
	rows, err := a.payments.Receipts.CreditNotes(r.Context(), p.Org, in.Year)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="credit-notes.csv"`)
	return payment.CreditNotesCSV(w, rows)
}

func (a documentsAPI) listSelfBills(ctx context.Context, p account.Principal,
	in *client.DocumentYear) (list[payout.SelfBill], error) {
	rows, err := a.payouts.SelfBills(ctx, p.Org, in.Year)
	return list[payout.SelfBill]{Items: rows}, err
}

func (a documentsAPI) getSelfBill(ctx context.Context, p account.Principal,
	in *documentInput) (payout.SelfBill, error) {
	return a.payouts.SelfBill(ctx, p.Org, in.Number)
}

func (a documentsAPI) selfBillsCSV(w http.ResponseWriter, r *http.Request, p account.Principal,
	in *client.DocumentYear) error {
	rows, err := a.payouts.SelfBills(r.Context(), p.Org, in.Year)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="self-billing.csv"`)
	return payout.SelfBillsCSV(w, rows)
}

func documentFilter(in client.DocumentsQuery) document.Filter {
	return document.Filter{Series: document.Series(in.Series), Year: in.Year, Before: in.After}
}

func cutDocuments(rows []statement.Document, limit int) list[statement.Document] {
	return cut(rows, limit, func(d statement.Document) statement.Document { return d },
		func(d statement.Document) string { return d.Number })
}

func (a documentsAPI) list(ctx context.Context, p account.Principal,
	in *client.DocumentsQuery) (list[statement.Document], error) {
	rows, err := a.statements.OrgDocuments(ctx, p.Org, documentFilter(*in), in.Limit+1)
	return cutDocuments(rows, in.Limit), err
}

func (a documentsAPI) listAll(ctx context.Context, p account.Principal,
	in *client.AllDocumentsQuery) (list[statement.Document], error) {
	f := documentFilter(in.DocumentsQuery)
	if in.Org != "" {
		var err error
		if f.Org, err = id.Parse[id.Org](in.Org); err != nil || f.Org.IsZero() {
			return list[statement.Document]{}, fault.InvalidField("query.org", "is not the id of an organisation")
		}
	}
	rows, err := a.statements.AllDocuments(ctx, p, f, in.Limit+1)
	return cutDocuments(rows, in.Limit), err
}

func (a documentsAPI) get(ctx context.Context, p account.Principal, in *documentInput) (client.FullDocument, error) {
	d, corrected, err := a.statements.OrgDocument(ctx, p.Org, in.Number)
	if err != nil {
		return client.FullDocument{}, err
	}
	return a.view(ctx, d, corrected)
}

func (a documentsAPI) getAny(ctx context.Context, p account.Principal,
	in *documentInput) (client.FullDocument, error) {
	d, corrected, err := a.statements.AnyDocument(ctx, p, in.Number)
	if err != nil {
		return client.FullDocument{}, err
	}
	return a.view(ctx, d, corrected)
}

// view adds the content of a document that the caller may see.
func (a documentsAPI) view(ctx context.Context, d statement.Document,
	corrected []string) (client.FullDocument, error) {
	v := client.FullDocument{Document: d, CorrectedBy: corrected}
	if d.Erased {
		return v, nil
	}
	switch {
	case d.TopUp != nil:
		r, err := a.payments.Receipts.Get(ctx, d.Org, *d.TopUp)
		v.Receipt = &r
		return v, err
	case d.Series == document.CreditNote:
		c, err := a.payments.Receipts.CreditNote(ctx, d.Org, d.Number)
		v.CreditNote = &c
		return v, err
	}
	b, err := a.payouts.SelfBill(ctx, d.Org, d.Number)
	v.SelfBilling = &b
	return v, err
}

type invoiceInput struct {
	Month string `path:"month" doc:"YYYY-MM in your organisation's zone"`
}

func (a documentsAPI) invoice(ctx context.Context, p account.Principal, in *invoiceInput) (client.Invoice, error) {
	v, err := a.statements.InvoiceOf(ctx, p.Org, p.OrgName, in.Month)
	return v.Invoice, err
}
