package web

import (
	"net/http"
	"strings"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/view"
)

func (s *Web) auditPage(v *visit) error {
	out := view.Audit{
		Query:  strings.TrimSpace(v.r.FormValue("q")),
		Action: strings.TrimSpace(v.r.FormValue("action")),
		Org:    strings.TrimSpace(v.r.FormValue("org")),
	}
	before, err := after[id.Audit](v)
	if err != nil {
		return err
	}
	f := audit.Filter{Words: out.Query, Action: out.Action}
	if err := f.Org.UnmarshalText([]byte(out.Org)); err != nil {
		out.Error, v.status = "is not the id of an organisation", http.StatusUnprocessableEntity
		return s.render(v, view.AuditPage(v.page("Audit trail", "desk"), out))
	}
	rows, err := s.Statements.SearchAudit(v.r.Context(), v.who, f, before, adminRows+1)
	if err != nil {
		return err
	}
	if len(rows) > adminRows {
		rows = rows[:adminRows]
		out.Next = older(v, rows[adminRows-1].ID.String())
	}
	out.Rows = s.auditRows(rows)
	return s.render(v, view.AuditPage(v.page("Audit trail", "desk"), out))
}
