package front

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

const (
	statusWithin = 3 * time.Second
	statusSince  = 30 * 24 * time.Hour
)

// status shows what this platform measures about itself. It answers also while the database cannot be reached, and says
// so.
func (s *Pages) status(v *page.Visit) error {
	ctx, cancel := context.WithTimeout(v.R.Context(), statusWithin)
	defer cancel()
	now := s.Now()
	out := Status{At: view.Clock(now, now)}
	for _, name := range slices.Sorted(maps.Keys(s.Ready)) {
		c := Check{Name: name, OK: true}
		if err := s.Ready[name](ctx); err != nil {
			s.Log.WarnContext(ctx, "status page: a check failed", "check", name, "err", err)
			c.OK = false
		}
		out.Checks = append(out.Checks, c)
	}
	standing, err := s.Hosts.Standing(ctx, now.Add(-statusSince))
	if err != nil {
		s.Log.WarnContext(ctx, "status page: read the standing", "err", err)
		return s.Render(v, StatusPage(v.Page("Status", "status"), out))
	}
	out.Known, out.Hosts, out.Connected = true, standing.Hosts, standing.Connected
	for _, i := range standing.Interruptions {
		row := InterruptionRow{From: view.Clock(i.From, now), For: "not over"}
		if !i.To.IsZero() && !i.To.After(now) {
			row.For = view.Dur(i.To.Sub(i.From))
		}
		out.Interruptions = append(out.Interruptions, row)
	}
	return s.Render(v, StatusPage(v.Page("Status", "status"), out))
}
