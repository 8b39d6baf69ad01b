package billing

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
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

// maxLabels is by how many labels the page offers sums.
const maxLabels = 6

// groupings returns by what the lines of a statement can be summed.
func groupings(s statement.Period) []string {
	out := []string{"cluster", "day", "project", "person", "lease"}
	var labels []string
	for _, l := range s.Lines {
		for k := range l.Labels {
			if k = "label:" + k; !slices.Contains(labels, k) {
				labels = append(labels, k)
			}
		}
	}
	slices.Sort(labels)
	return append(out, labels[:min(len(labels), maxLabels)]...)
}

func groupingName(by string) string {
	if label, ok := strings.CutPrefix(by, "label:"); ok {
		return "Label " + label
	}
	return strings.ToUpper(by[:1]) + by[1:]
}

func groupingURL(s statement.Period, by string) string {
	return "/billing/statement?" + url.Values{"from": {s.From}, "to": {s.To}, "by": {by}}.Encode()
}

// chartDays is how many days the chart of costs shows.
const chartDays = 30

// costByDay returns the chart of what was charged in the last days; nil if there is too much to sum up for a page.
func (s *Pages) costByDay(v *page.Visit) (*view.Columns, error) {
	from := s.Now().AddDate(0, 0, 1-chartDays).Format(time.DateOnly)
	p, err := s.Statements.Statement(v.R.Context(), v.Who.Org, from, "", "day")
	if fault.Is(err, fault.TooLarge) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	today, err := time.Parse(time.DateOnly, p.To)
	if err != nil {
		return nil, err
	}
	days := make([]view.DayAmount, 0, len(p.Groups))
	for _, g := range p.Groups {
		day, err := time.Parse(time.DateOnly, g.Key)
		if err != nil {
			return nil, err
		}
		days = append(days, view.DayAmount{Day: day, Amount: g.Cost})
	}
	out := view.NewColumns("Cost by day", p.Currency, today, days)
	return &out, nil
}
