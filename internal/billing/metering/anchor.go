package metering

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// An anchor is late by as long as its report was on its way, never early: the report that was quickest is the most
// exact.
const (
	anchorEveryMS   = 5 * 60_000 // at least every 10 min, by the contract; half of it, as a sync may be lost
	anchorOverdueMS = 9 * 60_000 // from then on a report that was slower than the last anchor's ties too
	// A report that would put the host's time ahead of the last anchor's line by more than a good crystal drifts, 1 in
	// 20,000, makes no anchor before a quicker one had the chance to; one that is ahead by more than a poor crystal
	// drifts, 1 in 2,000, and the jump, makes none at all.
	anchorGoodDiv = 20_000
	anchorPoorDiv = 2_000
	anchorJumpMS  = 1_000
	// A report that is so far in the future, by the last anchor, proves that anchor late and makes a new one at once:
	// otherwise a host whose first report was long under way would have its last seconds refused as not passed yet.
	anchorLateMS = 20
)

// IssueAnchor ties the host's boot clock to PostgreSQL's and returns the newest anchor of this boot: a new one if the
// last is five minutes old or was later than this report, else the last again, because its response may have been lost.
// bootMS is the host's CLOCK_BOOTTIME when it sent its report. Numbers rise by one, and both clocks rise with them; a
// report that was overtaken or delayed makes no anchor. Call it before all other work on a report: that work would make
// the anchor late. Calls that arrive at the same time share their statements.
func (c *Collector) IssueAnchor(ctx context.Context, host id.Host, bootID string,
	bootMS int64) (*agentapi.Anchor, error) {
	if bootID == "" || len(bootID) > maxBootID || bootMS < 0 {
		return nil, nil
	}
	return c.clocks.Do(ctx, BootClock{Host: host, BootID: bootID, BootMS: bootMS, Came: time.Now()})
}

// BootClock is what a host's boot clock showed in a report.
type BootClock struct {
	Host   id.Host
	BootID string
	BootMS int64
	Came   time.Time // when the report came, on this process's clock
}

// issueAnchors is IssueAnchor for many hosts. What a report waited here does not make its anchor late.
func (c *Collector) issueAnchors(ctx context.Context, all []BootClock) ([]*agentapi.Anchor, error) {
	asked := time.Now()
	newest, now, err := newestAnchors(ctx, c.db.Q, all)
	if err != nil {
		return nil, err
	}
	due := map[bootKey]DueAnchor{}
	for i, v := range all {
		came := now.Add(-asked.Sub(v.Came)).UnixMilli()
		if next := nextAnchor(newest[i], v.BootID, v.BootMS, came); next != newest[i] {
			due[v.key()] = DueAnchor{v.Host, *next}
		}
	}
	if len(due) == 0 {
		return newest, nil
	}
	b := &pgx.Batch{}
	QueueAnchors(b, slices.Collect(maps.Values(due)))
	if err := db.Send(ctx, c.db.Q, b); err != nil {
		return nil, fmt.Errorf("insert anchors: %w", err)
	}
	newest, _, err = newestAnchors(ctx, c.db.Q, all) // a concurrent report may have been first
	return newest, err
}

// bootKey is one boot of a host.
type bootKey struct {
	host id.Host
	boot string
}

func (c BootClock) key() bootKey { return bootKey{c.Host, c.BootID} }

// DueAnchor is an anchor that is to be issued to a host.
type DueAnchor struct {
	Host   id.Host
	Anchor agentapi.Anchor
}

// QueueAnchors queues the write of anchors, in one order everywhere, and returns which are issued, once the batch was
// sent: not those whose number another transaction has issued.
func QueueAnchors(b *pgx.Batch, all []DueAnchor) map[DueAnchor]bool {
	slices.SortFunc(all, func(x, y DueAnchor) int {
		return cmp.Or(x.Host.Compare(y.Host), cmp.Compare(x.Anchor.BootID, y.Anchor.BootID))
	})
	var p dbq.InsertAnchorsParams
	for _, v := range all {
		p.Hosts, p.Boots = append(p.Hosts, raw(v.Host)), append(p.Boots, v.Anchor.BootID)
		p.Numbers = append(p.Numbers, v.Anchor.Number)
		p.BootMs, p.ServerMs = append(p.BootMs, v.Anchor.BootMS), append(p.ServerMs, v.Anchor.ServerMS)
	}
	issued := make(map[DueAnchor]bool, len(all))
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.InsertAnchors(ctx, p)
		for _, r := range rows {
			issued[DueAnchor{r.HostID, *anchorOf(r)}] = true
		}
		return err
	})
	return issued
}

// nextAnchor returns the anchor to issue now, or last itself if none is due.
func nextAnchor(last *agentapi.Anchor, bootID string, bootMS, now int64) *agentapi.Anchor {
	if last == nil {
		return &agentapi.Anchor{BootID: bootID, Number: 1, BootMS: bootMS, ServerMS: now}
	}
	elapsed := now - last.ServerMS
	slower := now - last.At(bootMS) // than the last anchor's report; negative: it was quicker
	if elapsed <= 0 || bootMS <= last.BootMS {
		return last
	}
	due := elapsed >= anchorEveryMS && slower <= elapsed/anchorGoodDiv ||
		elapsed >= anchorOverdueMS && slower <= elapsed/anchorPoorDiv+anchorJumpMS
	if !due && slower > -anchorLateMS {
		return last
	}
	return &agentapi.Anchor{BootID: bootID, Number: last.Number + 1, BootMS: bootMS, ServerMS: now}
}

// AnchorDue reports whether IssueAnchor would issue an anchor after last, the newest of its boot, at now on
// PostgreSQL's clock.
func AnchorDue(last agentapi.Anchor, bootMS int64, now time.Time) bool {
	return nextAnchor(&last, last.BootID, bootMS, now.UnixMilli()) != &last
}

// newestAnchors returns the last anchor of each boot, nil if it has none, and PostgreSQL's clock.
func newestAnchors(ctx context.Context, q *dbq.Queries, all []BootClock) ([]*agentapi.Anchor, time.Time, error) {
	hosts, boots := make([]pgtype.UUID, len(all)), make([]string, len(all))
	for i, v := range all {
		hosts[i], boots[i] = raw(v.Host), v.BootID
	}
	var rows []dbq.TimeAnchor
	var now time.Time
	b := &pgx.Batch{}
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		rows, err = q.NewestAnchors(ctx, hosts, boots)
		return err
	})
	db.ReadNow(b, &now)
	if err := db.Send(ctx, q, b); err != nil {
		return nil, now, fmt.Errorf("read newest anchors: %w", err)
	}
	by := make(map[bootKey]*agentapi.Anchor, len(rows))
	for _, r := range rows {
		by[bootKey{r.HostID, r.BootID}] = anchorOf(r)
	}
	out := make([]*agentapi.Anchor, len(all))
	for i, v := range all {
		out[i] = by[v.key()]
	}
	return out, now, nil
}

func anchorOf(r dbq.TimeAnchor) *agentapi.Anchor {
	return &agentapi.Anchor{BootID: r.BootID, Number: r.Number, BootMS: r.BootMs, ServerMS: r.ServerMs}
}
