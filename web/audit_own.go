package web

import (
	"strings"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/view"
)

// ownAuditLog is what the visitor's organisation did.
func (s *Web) ownAuditLog(v *visit) error {
	out := view.Audit{Query: strings.TrimSpace(v.r.FormValue("q")), Action: strings.TrimSpace(v.r.FormValue("action"))}
	before, err := after[id.Audit](v)
	if err != nil {
		return err
	}
	rows, err := s.Accounts.AuditLog(v.r.Context(), v.who, audit.Filter{
		Action: out.Action,
		Words:  out.Query,
	}, before, adminRows+1)
	if err != nil {
		return err
	}
	if len(rows) > adminRows {
		rows = rows[:adminRows]
		out.Next = older(v, rows[adminRows-1].ID.String())
	}
	out.Rows = s.auditRows(rows)
	for i, r := range out.Rows {
		out.Rows[i].Own = true
		switch {
		case strings.HasPrefix(r.Object, "cl_"):
			out.Rows[i].Link = "/clusters/" + r.Object
		case strings.HasPrefix(r.Object, "host_"):
			out.Rows[i].Link = "/hosts/" + r.Object
		}
	}
	return s.render(v, view.TrailPage(v.page("Activity", ""), out))
}
