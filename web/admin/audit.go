package admin

import (
	"net/http"
	"strings"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

func (s *Pages) auditPage(v *page.Visit) error {
	out := view.Audit{
		Query:  strings.TrimSpace(v.R.FormValue("q")),
		Action: strings.TrimSpace(v.R.FormValue("action")),
		Org:    strings.TrimSpace(v.R.FormValue("org")),
		Known:  page.KnownActs(),
	}
	before, err := page.After[id.Audit](v)
	if err != nil {
		return err
	}
	f := audit.Filter{Words: out.Query, Action: out.Action}
	if err := f.Org.UnmarshalText([]byte(out.Org)); err != nil {
		out.Error, v.Status = "is not the id of an organisation", http.StatusUnprocessableEntity
		return s.Render(v, AuditPage(v.Page("Audit log", "admin"), out))
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
