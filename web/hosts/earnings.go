package hosts

import (
	"net/url"

	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
)

// earningsPage shows what the visitor's hosts earned between two days, on screen and for printing.
func (s *Pages) earningsPage(v *page.Visit) error {
	trouble := ""
	r, err := s.earningsOf(v)
	if err != nil {
		return err
	}
	p, err := s.Statements.OperatorStatement(v.R.Context(), r)
	if fault.Is(err, fault.Invalid) || fault.Is(err, fault.TooLarge) {
		trouble = "Choose two days, the first before the last, at most a year apart."
		v.Status = fault.KindOf(err).HTTPStatus()
		r.From, r.To, r.By = "", "", ""
		p, err = s.Statements.OperatorStatement(v.R.Context(), r)
	}
	if err != nil {
		return err
	}
	query := url.Values{"from": {p.From}, "to": {p.To}}
	if !r.Host.IsZero() {
		query.Set("host", r.Host.String())
	}
	return s.Render(v, EarningsPage(v.Page("Earnings", "hosts"), v.Who.OrgName, p, r.Host.String(),
		"/hosts/statement.csv?"+query.Encode(), trouble))
}

func (s *Pages) earningsCSV(v *page.Visit) error {
	r, err := s.earningsOf(v)
	if err != nil {
		return err
	}
	p, err := s.Statements.OperatorStatement(v.R.Context(), r)
	if err != nil {
		return err
	}
	v.W.Header().Set("Content-Type", "text/csv; charset=utf-8")
	v.W.Header().Set("Content-Disposition", `attachment; filename="earnings-`+p.From+"-"+p.To+`.csv"`)
	return p.CSV(v.W)
}

// earningsOf parses the period and the host in the URL.
func (s *Pages) earningsOf(v *page.Visit) (statement.OperatorRequest, error) {
	wait, err := s.Payouts.HoldbackOf(v.R.Context(), v.Who.Org)
	if err != nil {
		return statement.OperatorRequest{}, err
	}
	r := statement.OperatorRequest{
		Org:      v.Who.Org,
		Currency: s.Currency,
		From:     v.R.FormValue("from"),
		To:       v.R.FormValue("to"),
		By:       v.R.FormValue("by"),
		Holdback: wait,
	}
	if h := v.R.FormValue("host"); h != "" {
		if r.Host, err = id.Parse[id.Host](h); err != nil {
			return r, fault.New(fault.NotFound, "host not found")
		}
	}
	return r, nil
}
