package web

import (
	"cmp"
	"net/url"

	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/view"
)

// earningsPage is what the visitor's hosts earned between two days, for the screen and for paper.
func (s *Web) earningsPage(v *visit) error {
	trouble := ""
	r, err := s.earningsOf(v)
	if err != nil {
		return err
	}
	p, err := s.Statements.OperatorStatement(v.r.Context(), r)
	if fault.Is(err, fault.Invalid) || fault.Is(err, fault.TooLarge) {
		trouble = "Choose two days, the first before the last, at most a year apart."
		v.status = fault.KindOf(err).HTTPStatus()
		r.From, r.To, r.By = "", "", ""
		p, err = s.Statements.OperatorStatement(v.r.Context(), r)
	}
	if err != nil {
		return err
	}
	query := url.Values{"from": {p.From}, "to": {p.To}}
	if !r.Host.IsZero() {
		query.Set("host", r.Host.String())
	}
	return s.render(v, view.EarningsPage(v.page("Earnings", "hosts"), v.who.OrgName, p, r.Host.String(),
		"/hosts/statement.csv?"+query.Encode(), trouble))
}

func (s *Web) earningsCSV(v *visit) error {
	r, err := s.earningsOf(v)
	if err != nil {
		return err
	}
	p, err := s.Statements.OperatorStatement(v.r.Context(), r)
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	v.w.Header().Set("Content-Disposition", `attachment; filename="earnings-`+p.From+"-"+p.To+`.csv"`)
	return p.CSV(v.w)
}

// earningsOf is the statement that the page is asked for.
func (s *Web) earningsOf(v *visit) (statement.OperatorRequest, error) {
	r := statement.OperatorRequest{
		Org:      v.who.Org,
		Currency: s.Currency,
		From:     v.r.FormValue("from"),
		To:       v.r.FormValue("to"),
		By:       v.r.FormValue("by"),
		Holdback: cmp.Or(s.Holdback, payout.DefaultHoldback),
	}
	if h := v.r.FormValue("host"); h != "" {
		var err error
		if r.Host, err = id.Parse[id.Host](h); err != nil {
			return r, fault.New(fault.NotFound, "no such host")
		}
	}
	return r, nil
}
