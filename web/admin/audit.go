package admin

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// auditPages are the audit log of the platform.
type auditPages struct {
	*page.Site
}

func (s *auditPages) auditPage(v *page.Visit) error {
	out, f, err := auditSearch(v)
	if err != nil {
		out.Error, v.Status = "is not the id of an organisation", http.StatusUnprocessableEntity
		return s.Render(v, AuditPage(v.Page("Audit log", "admin"), out))
	}
	before, err := page.After[id.Audit](v)
	if err != nil {
		return err
	}
	rows, err := s.Statements.SearchAudit(v.R.Context(), v.Who, f, before, page.AdminRows+1)
	if err != nil {
		return err
	}
	if len(rows) > page.AdminRows {
		rows = rows[:page.AdminRows]
		out.Next = page.Older(v, rows[page.AdminRows-1].ID.String())
	}
	out.Rows = s.AuditRows(rows)
	return s.Render(v, AuditPage(v.Page("Audit log", "admin"), out))
}

// auditSearch reads what the form searches for. The error is about the field org.
func auditSearch(v *page.Visit) (view.Audit, audit.Filter, error) {
	out := view.Audit{
		Query:  strings.TrimSpace(v.R.FormValue("q")),
		Action: strings.TrimSpace(v.R.FormValue("action")),
		Org:    strings.TrimSpace(v.R.FormValue("org")),
		Known:  page.KnownActs(),
	}
	out.CSV = "/admin/audit.csv?" + url.Values{"q": {out.Query}, "action": {out.Action}, "org": {out.Org}}.Encode()
	f := audit.Filter{Words: out.Query, Action: out.Action}
	return out, f, f.Org.UnmarshalText([]byte(out.Org))
}

// auditCSV returns the newest events that match, as a file.
func (s *auditPages) auditCSV(v *page.Visit) error {
	_, f, err := auditSearch(v)
	if err != nil {
		return fault.New(fault.NotFound, "organisation not found")
	}
	rows, err := s.Statements.SearchAudit(v.R.Context(), v.Who, f, id.Audit{}, audit.CSVRows)
	if err != nil {
		return err
	}
	v.W.Header().Set("Content-Type", "text/csv; charset=utf-8")
	v.W.Header().Set("Content-Disposition", `attachment; filename="audit-log.csv"`)
	return audit.CSV(v.W, rows)
}
