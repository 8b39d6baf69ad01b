package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/tax"
)

func (a *API) taxReport(ctx context.Context, _ account.Principal, in *struct {
	Period string `query:"period" required:"true" maxLength:"10" doc:"a year, quarter or month, in UTC" example:"2026-Q1"`
}) (tax.Report, error) {
	return tax.ReportOf(ctx, a.db.Q, a.cfg.Currency, in.Period)
}

func taxParams() []*huma.Param {
	return []*huma.Param{{Name: "period", In: "query", Required: true, Description: "a year, quarter or month, in UTC, such as 2026-Q1", Schema: &huma.Schema{Type: huma.TypeString}}}
}

func (a *API) taxReportCSV(w http.ResponseWriter, r *http.Request, _ account.Principal) error {
	t, err := tax.ReportOf(r.Context(), a.db.Q, a.cfg.Currency, r.FormValue("period"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="tax-`+strings.ToLower(t.Period)+`.csv"`)
	return t.CSV(w)
}
