package metering

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

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
// the anchor late.
func (c *Collector) IssueAnchor(ctx context.Context, host id.Host, bootID string,
	bootMS int64) (*agentapi.Anchor, error) {
	q := c.db.Q
	if bootID == "" || len(bootID) > maxBootID || bootMS < 0 {
		return nil, nil
	}
	last, at, err := newestAnchor(ctx, q, host, bootID)
	if err != nil {
		return nil, err
	}
	next := nextAnchor(last, bootID, bootMS, at.UnixMilli())
	if next == last {
		return last, nil
	}
	err = q.InsertAnchor(ctx, dbq.InsertAnchorParams{
		HostID:   host,
		BootID:   bootID,
		Number:   next.Number,
		BootMs:   next.BootMS,
		ServerMs: next.ServerMS,
	})
	if err != nil {
		return nil, fmt.Errorf("insert anchor: %w", err)
	}
	last, _, err = newestAnchor(ctx, q, host, bootID) // a concurrent report may have been first
	return last, err
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

// newestAnchor returns the last anchor of a boot, nil if it has none, and PostgreSQL's clock.
func newestAnchor(ctx context.Context, q *dbq.Queries, host id.Host,
	bootID string) (*agentapi.Anchor, time.Time, error) {
	var rows []dbq.TimeAnchor
	var at time.Time
	b := &pgx.Batch{}
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		rows, err = q.NewestAnchor(ctx, host, bootID)
		return err
	})
	db.ReadNow(b, &at)
	if err := db.Send(ctx, q, b); err != nil {
		return nil, at, fmt.Errorf("read newest anchor: %w", err)
	}
	if len(rows) == 0 {
		return nil, at, nil
	}
	r := rows[0]
	return &agentapi.Anchor{BootID: r.BootID, Number: r.Number, BootMS: r.BootMs, ServerMS: r.ServerMs}, at, nil
}
