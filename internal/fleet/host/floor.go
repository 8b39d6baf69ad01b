package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/text"
)

// floor is the oldest version of a component that may run renters' work.
type floor struct {
	component  string // docker, runc, toolkit, driver
	branch     string // prefix of the versions that it is of; "": of all others
	least      string
	reason     string
	noticed    time.Time // day on which the reason became known
	blocks     bool      // an older version keeps the host from being rented, now
	blocksFrom time.Time // or from then on; zero: never
}

// queueFloors queues the read of all floors.
func queueFloors(b *pgx.Batch, into *[]floor) {
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.VersionFloors(ctx)
		for _, r := range rows {
			f := floor{component: r.Component, branch: r.Branch, least: r.Least, reason: r.Reason,
				noticed: r.NoticedOn.Time, blocks: r.Blocks}
			if r.WillBlock {
				f.blocksFrom = r.BlocksFrom.UTC()
			}
			*into = append(*into, f)
		}
		return err
	})
}

// floorProblems returns the problems of an inventory's versions that are older than they may be. A version that is not
// reported, or that has no number, is not judged.
func floorProblems(inv *agentapi.Inventory, floors []floor) []agentapi.Problem {
	if inv.Simulated {
		return nil
	}
	var out []agentapi.Problem
	for _, c := range []struct{ component, name, is string }{
		{"docker", "Docker", inv.DockerVersion}, {"runc", "runc", inv.RuncVersion},
		{"toolkit", "NVIDIA Container Toolkit", inv.ToolkitVersion}, {"driver", "NVIDIA driver", inv.Driver},
	} {
		f, ok := floorOf(floors, c.component, c.is)
		number, _, _ := strings.Cut(c.is, "+") // 1.1.5+ds1
		v, parsed := version(number)
		least, _ := version(f.least)
		if !ok || !parsed || !less(v, least) {
			continue
		}
		p := agentapi.Problem{
			Code:     "version_floor",
			Severity: "warn",
			Cause: fmt.Sprintf("%s %s is older than %s: %s.", c.name, text.Clip(c.is, 40), f.least,
				text.Clip(f.reason, 200)),
			Evidence: "known since " + f.noticed.Format(time.DateOnly),
			Fix:      fmt.Sprintf("Update %s to %s or newer.", c.name, f.least),
		}
		switch {
		case f.blocks:
			p.Severity = "bad"
		case !f.blocksFrom.IsZero():
			p.Fix += " From " + f.blocksFrom.Format(time.DateOnly) + " on the host is not rented with the older version."
		default:
			p.Fix += " If your distribution fixed the older version without changing its number, there is nothing to do."
		}
		out = append(out, p)
	}
	return out
}

// floorOf returns the floor of a version: that of its branch, or else the general one.
func floorOf(floors []floor, component, version string) (f floor, ok bool) {
	for _, c := range floors {
		if c.component == component && strings.HasPrefix(version, c.branch) && (!ok || len(c.branch) > len(f.branch)) {
			f, ok = c, true
		}
	}
	return f, ok
}
