package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

func (a *API) taxReport(ctx context.Context, p account.Principal, in *struct {
	Period string `query:"period" required:"true" maxLength:"10" doc:"a year, quarter or month, in UTC" example:"2026-Q1"`
}) (tax.Report, error) {
	return a.statements.Taxes(ctx, p, in.Period)
}

func taxParams() []*huma.Param {
	return []*huma.Param{{
		Name:        "period",
		In:          "query",
		Required:    true,
		Description: "a year, quarter or month, in UTC, such as 2026-Q1",
		Schema:      &huma.Schema{Type: huma.TypeString},
	}}
}

func (a *API) taxReportCSV(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	t, err := a.statements.Taxes(r.Context(), p, r.URL.Query().Get("period"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="tax-`+strings.ToLower(t.Period)+`.csv"`)
	return t.CSV(w)
}

type remitTaxInput struct {
	Keyed
	Body struct {
		Period  string `json:"period" maxLength:"10" doc:"a year, quarter or month in UTC that is over" example:"2026-Q1"`
		Country string `json:"country" minLength:"2" maxLength:"2" doc:"as the report names it" example:"DE"`
		Amount  string `json:"amount" doc:"a decimal: at most what is left of the period" example:"1234.56"`
		Reason  string `json:"reason" minLength:"1" maxLength:"500" doc:"such as the reference of the bank's transfer; the audit trail keeps it"`
	}
}

func (a *API) remitTax(ctx context.Context, p account.Principal, in *remitTaxInput,
	once idem.Request) (tax.Report, idem.Outcome, error) {
	amount, err := money.ParseNano(in.Body.Amount)
	if err != nil {
		return tax.Report{}, idem.Outcome{}, fault.InvalidField("amount", "%s", err)
	}
	return a.payments.RemitTax(ctx, p, tax.Remittance{
		Period:  in.Body.Period,
		Country: in.Body.Country,
		Amount:  amount,
		Reason:  in.Body.Reason,
	}, once)
}
