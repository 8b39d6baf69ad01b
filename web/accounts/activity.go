package accounts

import (
	"strings"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// activityPages are the audit log of the visitor's organisation.
type activityPages struct {
	*page.Site
}

// ownAuditLog shows the audit log of the visitor's organisation.
func (s *activityPages) ownAuditLog(v *page.Visit) error {
	out := view.Audit{Query: strings.TrimSpace(v.R.FormValue("q")), Action: strings.TrimSpace(v.R.FormValue("action"))}
	before, err := page.After[id.Audit](v)
	if err != nil {
		return err
	}
	rows, err := s.Accounts.AuditLog(v.R.Context(), v.Who, audit.Filter{
		Action: out.Action,
		Words:  out.Query,
	}, before, page.AdminRows+1)
	if err != nil {
		return err
	}
	if len(rows) > page.AdminRows {
		rows = rows[:page.AdminRows]
		out.Next = page.Older(v, rows[page.AdminRows-1].ID.String())
	}
	out.Rows = s.AuditRows(rows)
	for i, r := range out.Rows {
		out.Rows[i].Own = true
		switch {
		case strings.HasPrefix(r.Object, "cl_"):
			out.Rows[i].Link = "/clusters/" + r.Object
		case strings.HasPrefix(r.Object, "host_"):
			out.Rows[i].Link = "/hosts/" + r.Object
		}
	}
	return s.Render(v, TrailPage(v.Page("Activity", ""), out))
}
