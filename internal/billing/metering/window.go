package metering

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// OpenWindow starts a billing window of the cluster: the last required rank reports that its workload runs. at is
// PostgreSQL's clock. A window that is already open stays as it is. One never opens before the end of the last one,
// nor before the moment from which money is held. The caller holds the cluster's lock, here and below.
func OpenWindow(ctx context.Context, tx *db.Tx, cluster id.Cluster, at time.Time) error {
	last, err := lastWindow(ctx, tx.Q, cluster)
	if err != nil {
		return err
	}
	cover, err := tx.Q.ClusterCover(ctx, cluster)
	if err != nil {
		return fmt.Errorf("read cover: %w", err)
	}
	opened := max(at.UnixMilli(), cover.CoveredFromMs)
	switch {
	case last == nil:
	case last.LimitMs != nil:
		opened = max(opened, *last.LimitMs)
	case last.ClosedMs == nil:
		return nil
	default:
		opened = max(opened, *last.ClosedMs)
	}
	if err := tx.Q.InsertWindow(ctx, cluster, opened); err != nil {
		return fmt.Errorf("open window: %w", err)
	}
	return nil
}

// AdvanceConfirmed records that all required ranks were well at the given moment: the earliest of their last good
// reports. Time up to it may be posted. It never goes back and never past run_until; without an open window, and while
// a rank is in doubt, it does nothing.
func AdvanceConfirmed(ctx context.Context, tx *db.Tx, cluster id.Cluster, at time.Time) error {
	w, limit, err := openWindow(ctx, tx.Q, cluster)
	if err != nil || w == nil || w.DoubtFromMs != nil || min(at.UnixMilli(), limit) <= w.ConfirmedUntilMs {
		return err
	}
	err = tx.Q.AdvanceWindow(ctx, min(at.UnixMilli(), limit), cluster, w.N)
	if err != nil {
		return fmt.Errorf("advance window: %w", err)
	}
	return nil
}

// AdvanceAllConfirmed is AdvanceConfirmed of several clusters, each with its own moment, unix ms. All of them are paid
// for beyond that moment.
func AdvanceAllConfirmed(ctx context.Context, tx *db.Tx, clusters []pgtype.UUID, ms []int64) error {
	if len(clusters) == 0 {
		return nil
	}
	if err := tx.Q.AdvanceWindows(ctx, clusters, ms); err != nil {
		return fmt.Errorf("advance windows: %w", err)
	}
	return nil
}

// DoubtWindow notes that a rank is not proven up: from the given moment on, and never before what is confirmed, nothing
// of the open window is confirmed. The window stays open, because proof may still come. Without an open window, or when
// one is in doubt already, it does nothing.
func DoubtWindow(ctx context.Context, tx *db.Tx, cluster id.Cluster, from time.Time) error {
	w, limit, err := openWindow(ctx, tx.Q, cluster)
	if err != nil || w == nil || w.DoubtFromMs != nil {
		return err
	}
	doubt := max(w.ConfirmedUntilMs, min(from.UnixMilli(), limit))
	if err := tx.Q.DoubtWindow(ctx, doubt, cluster, w.N); err != nil {
		return fmt.Errorf("doubt window: %w", err)
	}
	return nil
}

// ResumeWindow ends the doubt: seconds count again from the given moment, in a new window, and the time since the doubt
// began is pending until DecidePending. Without a window in doubt it does nothing.
func ResumeWindow(ctx context.Context, tx *db.Tx, cluster id.Cluster, at time.Time) error {
	w, _, err := openWindow(ctx, tx.Q, cluster)
	if err != nil || w == nil || w.DoubtFromMs == nil {
		return err
	}
	if _, err := CloseWindow(ctx, tx, cluster, at); err != nil {
		return err
	}
	return OpenWindow(ctx, tx, cluster, at)
}

// SplitWindow makes a part of the open window pending that is not confirmed yet: the window is confirmed and ends at
// the part's beginning, the part is pending until DecidePending, and seconds continue to count from its end, in a new
// window. Together they cover what the open window covered, so the held money still suffices. Without an open window,
// and while a rank is in doubt, it does nothing.
func SplitWindow(ctx context.Context, tx *db.Tx, cluster id.Cluster, part Interval) error {
	w, limit, err := openWindow(ctx, tx.Q, cluster)
	if err != nil || w == nil || w.DoubtFromMs != nil {
		return err
	}
	part = part.And(Interval{Start: w.ConfirmedUntilMs, End: limit})
	if part.Len() == 0 {
		return nil
	}
	for _, step := range []func() error{
		func() error { return tx.Q.CloseWindow(ctx, &part.Start, cluster, w.N) },
		func() error { return tx.Q.InsertPending(ctx, cluster, part.Start, &part.End) },
		func() error { return tx.Q.InsertWindow(ctx, cluster, part.End) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("split window: %w", err)
		}
	}
	return nil
}

// CloseWindow ends the open window: at the given moment for an orderly end, but not past run_until; at confirmed_until
// when the moment is zero or earlier: a suspension. Where the window is in doubt it ends where the doubt began, and the
// time from there to the given moment is pending until DecidePending. Without an open window it does nothing and closed
// is false.
func CloseWindow(ctx context.Context, tx *db.Tx, cluster id.Cluster, at time.Time) (closed bool, err error) {
	w, limit, err := openWindow(ctx, tx.Q, cluster)
	if err != nil || w == nil {
		return false, err
	}
	end := w.ConfirmedUntilMs
	if !at.IsZero() {
		end = max(end, min(at.UnixMilli(), limit))
	}
	proven := end
	if w.DoubtFromMs != nil {
		proven = min(end, *w.DoubtFromMs)
	}
	if err := tx.Q.CloseWindow(ctx, &proven, cluster, w.N); err != nil {
		return false, fmt.Errorf("close window: %w", err)
	}
	if proven < end {
		if err := tx.Q.InsertPending(ctx, cluster, proven, &end); err != nil {
			return false, fmt.Errorf("insert pending window: %w", err)
		}
	}
	return true, nil
}

// AddTail makes the time after a stop billable in which processes that the renter ended still run: of each lease alone,
// as its host signs it. Call it before the leases end.
func AddTail(ctx context.Context, tx *db.Tx, cluster id.Cluster, from, until time.Time) error {
	end := until.UnixMilli()
	if err := tx.Q.InsertClosedWindow(ctx, cluster, from.UnixMilli(), &end); err != nil {
		return fmt.Errorf("insert tail: %w", err)
	}
	return nil
}

// Pending is past time of a cluster of which it is not decided yet whether it counts.
type Pending struct {
	N    int32 // names it within the cluster
	Span Interval
}

// PendingOf lists the pending time of a cluster, earliest first.
func PendingOf(ctx context.Context, q *dbq.Queries, cluster id.Cluster) ([]Pending, error) {
	rows, err := q.PendingWindows(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("read pending windows: %w", err)
	}
	out := make([]Pending, len(rows))
	for i, r := range rows {
		out[i] = Pending{N: r.N, Span: Interval{Start: r.OpenedMs, End: *r.LimitMs}}
	}
	return out, nil
}

// DecidePending ends pending time for good: of it, billable counts, and the rest does not. What is billable is charged
// with the next posting.
func DecidePending(ctx context.Context, tx *db.Tx, cluster id.Cluster, p Pending, billable Set) error {
	end := p.Span.Start
	rest := billable.Clip(p.Span)
	if len(rest) > 0 && rest[0].Start == p.Span.Start {
		end, rest = rest[0].End, rest[1:]
	}
	if err := tx.Q.CloseWindow(ctx, &end, cluster, p.N); err != nil {
		return fmt.Errorf("decide pending window: %w", err)
	}
	for _, r := range rest {
		if err := tx.Q.InsertClosedWindow(ctx, cluster, r.Start, &r.End); err != nil {
			return fmt.Errorf("decide pending window: %w", err)
		}
	}
	return nil
}

// openWindow returns the open window, nil without one, and the moment no time of it may pass: the leases' run_until. A
// lease that was never authorised bounds it to nothing.
func openWindow(ctx context.Context, q *dbq.Queries,
	cluster id.Cluster) (w *dbq.ClusterWindow, limit int64, err error) {
	w, err = lastWindow(ctx, q, cluster)
	if err != nil || w == nil || w.ClosedMs != nil || w.LimitMs != nil {
		return nil, 0, err
	}
	cover, err := q.ClusterCover(ctx, cluster)
	if err != nil {
		return nil, 0, fmt.Errorf("read cover: %w", err)
	}
	return w, cover.RunUntilMs, nil
}

// lastWindow returns the window that runs now, or the one whose time ends last.
func lastWindow(ctx context.Context, q *dbq.Queries, cluster id.Cluster) (*dbq.ClusterWindow, error) {
	w, err := q.LastWindow(ctx, cluster)
	if db.NoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read last window: %w", err)
	}
	return &w, nil
}
