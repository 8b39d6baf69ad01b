package web

import (
	"net/url"

	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/web/view"
)

// statementPage is what was billed between two days.
func (s *Web) statementPage(v *visit) error {
	trouble := ""
	p, err := s.period(v)
	if fault.Is(err, fault.Invalid) || fault.Is(err, fault.TooLarge) {
		trouble = "Choose two days, the first before the last, at most a year apart."
		v.status = fault.KindOf(err).HTTPStatus()
		p, err = s.Statements.Statement(v.r.Context(), v.who.Org, "", "", "")
	}
	if err != nil {
		return err
	}
	csv := "/billing/statement.csv?" + url.Values{"from": {p.From}, "to": {p.To}}.Encode()
	return s.render(v, view.PeriodPage(v.page("Statement", "billing"), v.who.OrgName, p, csv, trouble))
}

func (s *Web) statementCSV(v *visit) error {
	p, err := s.period(v)
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	v.w.Header().Set("Content-Disposition", `attachment; filename="statement-`+p.From+"-"+p.To+`.csv"`)
	return p.CSV(v.w)
}

func (s *Web) period(v *visit) (statement.Period, error) {
	return s.Statements.Statement(v.r.Context(), v.who.Org, v.r.FormValue("from"), v.r.FormValue("to"),
		v.r.FormValue("by"))
}
