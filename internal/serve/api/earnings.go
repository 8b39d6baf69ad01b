package api

import (
	"cmp"
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

type earningsInput struct {
	From string `query:"from" doc:"first day, YYYY-MM-DD in your organisation's zone; left out: the first of this month"`
	To   string `query:"to" doc:"last day; left out: today"`
	By   string `query:"by" doc:"host, day or lease; left out: host"`
	Host string `query:"host" doc:"one of your hosts; left out: all"`
}

func (a *API) earningsStatement(ctx context.Context, p account.Principal,
	in *earningsInput) (statement.OperatorPeriod, error) {
	r := statement.OperatorRequest{
		Org:      p.Org,
		Currency: a.cfg.Currency,
		From:     in.From,
		To:       in.To,
		By:       in.By,
		Holdback: cmp.Or(a.cfg.Holdback, payout.DefaultHoldback),
	}
	if in.Host != "" {
		h, err := id.Parse[id.Host](in.Host)
		if err != nil {
			return statement.OperatorPeriod{}, fault.InvalidField("query.host", "is not the id of a host")
		}
		r.Host = h
	}
	return a.statements.OperatorStatement(ctx, r)
}

func earningsParams() []*huma.Param {
	text := &huma.Schema{Type: huma.TypeString}
	return append(statementParams(), &huma.Param{
		Name:        "host",
		In:          "query",
		Description: "one of your hosts; left out: all",
		Schema:      text,
	})
}

func (a *API) earningsStatementCSV(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	s, err := a.earningsStatement(r.Context(), p, &earningsInput{
		From: r.URL.Query().Get("from"),
		To:   r.URL.Query().Get("to"),
		Host: r.URL.Query().Get("host"),
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="earnings-`+s.From+"-"+s.To+`.csv"`)
	return s.CSV(w)
}
