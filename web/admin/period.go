package admin

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
)

// periodPages are what the ledger says of a period.
type periodPages struct {
	*page.Site
}

// days reads the period of a page; without one it is the month that is over.
func (s *periodPages) days(v *page.Visit) (Period, ledger.Days, error) {
	x := Period{From: strings.TrimSpace(v.R.FormValue("from")), To: strings.TrimSpace(v.R.FormValue("to"))}
	if x.From == "" && x.To == "" {
		this := s.Now().UTC().AddDate(0, 0, 1-s.Now().UTC().Day())
		x.From = this.AddDate(0, -1, 0).Format(time.DateOnly)
		x.To = this.AddDate(0, 0, -1).Format(time.DateOnly)
	}
	d, err := ledger.ParseDays(x.From, x.To)
	if err != nil {
		x.Errors, v.Status = map[string]string{}, http.StatusUnprocessableEntity
		for _, f := range fault.From(err).Fields {
			x.Errors[f.Location] = f.Message
		}
	}
	return x, d, err
}

// period shows the ledger of some days.
func (s *periodPages) period(v *page.Visit) error {
	x, d, err := s.days(v)
	if err == nil {
		if x.Report, err = s.Statements.LedgerReport(v.R.Context(), v.Who, d); err != nil {
			return err
		}
	}
	return s.Render(v, PeriodPage(v.Page("Period", "admin"), x))
}

// journal shows the entries of some days, a page at a time.
func (s *periodPages) journal(v *page.Visit) error {
	x, d, err := s.days(v)
	j := Journal{Period: x, Kind: strings.TrimSpace(v.R.FormValue("kind"))}
	if err == nil {
		behind, err := ledger.ParsePlace(v.R.FormValue("after"))
		if err != nil {
			return fault.New(fault.NotFound, "page not found")
		}
		j.Entries, err = s.Statements.Journal(v.R.Context(), v.Who, d, j.Kind, behind, page.AdminRows+1)
		if err != nil {
			return err
		}
		if len(j.Entries) > page.AdminRows {
			j.Entries = j.Entries[:page.AdminRows]
			last := j.Entries[page.AdminRows-1].Place.String()
			j.Next = "/admin/books/journal?" + url.Values{"from": {j.From}, "to": {j.To}, "kind": {j.Kind},
				"after": {last}}.Encode()
		}
	}
	return s.Render(v, JournalPage(v.Page("Journal", "admin"), j))
}

// orgsAt shows what organisations had at the end of a day.
func (s *periodPages) orgsAt(v *page.Visit) error {
	x := OrgsAt{At: strings.TrimSpace(v.R.FormValue("at")), Currency: s.Currency}
	day, err := s.Statements.LedgerDay(v.R.Context(), x.At)
	if fault.Is(err, fault.Invalid) {
		x.Error, v.Status = "is not a day", http.StatusUnprocessableEntity
		return s.Render(v, OrgsAtPage(v.Page("By organisation", "admin"), x))
	}
	if err != nil {
		return err
	}
	x.At = day.Format(time.DateOnly)
	behind, err := page.After[id.Org](v)
	if err != nil {
		return err
	}
	if x.Orgs, err = s.Statements.OrgMoney(v.R.Context(), v.Who, day, behind, page.AdminRows+1); err != nil {
		return err
	}
	if len(x.Orgs) > page.AdminRows {
		x.Orgs = x.Orgs[:page.AdminRows]
		x.Next = page.Older(v, x.Orgs[page.AdminRows-1].Org.String())
	}
	return s.Render(v, OrgsAtPage(v.Page("By organisation", "admin"), x))
}
