package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/payout"
)

type documentYearInput struct {
	Year string `query:"year" required:"true" doc:"calendar year of issue in UTC, such as 2026"`
}

type documentInput struct {
	Number string `path:"number" doc:"such as C-2026-000001"`
}

func documentYearParams() []*huma.Param {
	return []*huma.Param{{
		Name:        "year",
		In:          "query",
		Description: "calendar year of issue in UTC, such as 2026",
		Required:    true,
		Schema:      &huma.Schema{Type: huma.TypeString},
	}}
}

func (a *API) listCreditNotes(ctx context.Context, p account.Principal,
	in *documentYearInput) (list[payment.CreditNote], error) {
	rows, err := a.payments.CreditNotes(ctx, p.Org, in.Year)
	return list[payment.CreditNote]{Items: rows}, err
}

func (a *API) getCreditNote(ctx context.Context, p account.Principal, in *documentInput) (payment.CreditNote, error) {
	return a.payments.CreditNote(ctx, p.Org, in.Number)
}

func (a *API) creditNotesCSV(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	rows, err := a.payments.CreditNotes(r.Context(), p.Org, r.URL.Query().Get("year"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="credit-notes.csv"`)
	return payment.CreditNotesCSV(w, rows)
}

func (a *API) listSelfBills(ctx context.Context, p account.Principal,
	in *documentYearInput) (list[payout.SelfBill], error) {
	rows, err := a.payouts.SelfBills(ctx, p.Org, in.Year)
	return list[payout.SelfBill]{Items: rows}, err
}

func (a *API) getSelfBill(ctx context.Context, p account.Principal, in *documentInput) (payout.SelfBill, error) {
	return a.payouts.SelfBill(ctx, p.Org, in.Number)
}

func (a *API) selfBillsCSV(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	rows, err := a.payouts.SelfBills(r.Context(), p.Org, r.URL.Query().Get("year"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="self-billing.csv"`)
	return payout.SelfBillsCSV(w, rows)
}
