package metering

import (
	"context"
	"fmt"
	"time"

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
		return fmt.Errorf("metering: cover: %w", err)
	}
	n, opened := int32(1), max(at.UnixMilli(), cover.CoveredFromMs)
	if last != nil {
		if last.ClosedMs == nil {
			return nil
		}
		n, opened = last.N+1, max(opened, *last.ClosedMs)
	}
	if err := tx.Q.InsertWindow(ctx, cluster, n, opened); err != nil {
		return fmt.Errorf("metering: open window: %w", err)
	}
	return nil
}

// AdvanceConfirmed says that all required ranks were well at the given moment: the earliest of their last good
// reports. Time up to it may be posted. It never goes back and never past run_until; without an open window it does
// nothing.
func AdvanceConfirmed(ctx context.Context, tx *db.Tx, cluster id.Cluster, at time.Time) error {
	w, limit, err := openWindow(ctx, tx.Q, cluster)
	if err != nil || w == nil {
		return err
	}
	err = tx.Q.AdvanceWindow(ctx, min(at.UnixMilli(), limit), cluster, w.N)
	if err != nil {
		return fmt.Errorf("metering: advance window: %w", err)
	}
	return nil
}

// CloseWindow ends the open window: at the given moment for an orderly end, but not past run_until; at confirmed_until
// when the moment is zero or earlier: a suspension. Without an open window it does nothing and closed is false.
func CloseWindow(ctx context.Context, tx *db.Tx, cluster id.Cluster, at time.Time) (closed bool, err error) {
	w, limit, err := openWindow(ctx, tx.Q, cluster)
	if err != nil || w == nil {
		return false, err
	}
	end := w.ConfirmedUntilMs
	if !at.IsZero() {
		end = max(end, min(at.UnixMilli(), limit))
	}
	if err := tx.Q.CloseWindow(ctx, &end, cluster, w.N); err != nil {
		return false, fmt.Errorf("metering: close window: %w", err)
	}
	return true, nil
}

// openWindow is the open window, nil without one, and the moment no time of it may pass: the leases' run_until. A lease
// that was never authorised bounds it to nothing.
func openWindow(ctx context.Context, q *dbq.Queries, cluster id.Cluster) (w *dbq.ClusterWindow, limit int64, err error) {
	w, err = lastWindow(ctx, q, cluster)
	if err != nil || w == nil || w.ClosedMs != nil {
		return nil, 0, err
	}
	cover, err := q.ClusterCover(ctx, cluster)
	if err != nil {
		return nil, 0, fmt.Errorf("metering: cover: %w", err)
	}
	return w, cover.RunUntilMs, nil
}

func lastWindow(ctx context.Context, q *dbq.Queries, cluster id.Cluster) (*dbq.ClusterWindow, error) {
	w, err := q.LastWindow(ctx, cluster)
	if db.NoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("metering: last window: %w", err)
	}
	return &w, nil
}
