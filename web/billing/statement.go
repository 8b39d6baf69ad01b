package billing

import (
	"net/url"

	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/web/page"
)

// statementPage shows what was billed between two days.
func (s *Pages) statementPage(v *page.Visit) error {
	trouble := ""
	p, err := s.period(v)
	if fault.Is(err, fault.Invalid) || fault.Is(err, fault.TooLarge) {
		trouble = "Choose two days, the first before the last, at most a year apart."
		v.Status = fault.KindOf(err).HTTPStatus()
		p, err = s.Statements.Statement(v.R.Context(), v.Who.Org, "", "", "")
	}
	if err != nil {
		return err
	}
	csv := "/billing/statement.csv?" + url.Values{"from": {p.From}, "to": {p.To}}.Encode()
	return s.Render(v, PeriodPage(v.Page("Statement", "billing"), v.Who.OrgName, p, csv, trouble))
}

func (s *Pages) statementCSV(v *page.Visit) error {
	p, err := s.period(v)
	if err != nil {
		return err
	}
	v.W.Header().Set("Content-Type", "text/csv; charset=utf-8")
	v.W.Header().Set("Content-Disposition", `attachment; filename="statement-`+p.From+"-"+p.To+`.csv"`)
	return p.CSV(v.W)
}

func (s *Pages) period(v *page.Visit) (statement.Period, error) {
	return s.Statements.Statement(v.R.Context(), v.Who.Org, v.R.FormValue("from"), v.R.FormValue("to"),
		v.R.FormValue("by"))
}
