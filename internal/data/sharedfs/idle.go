package sharedfs

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

const (
	// KeepFor is how long a folder stays without a cluster.
	KeepFor = 30 * 24 * time.Hour
	// WarnBefore is how long before its deletion its organisation is notified, at least.
	WarnBefore = 7 * 24 * time.Hour

	maxIdle = 100 // folders of one round
)

// EndIdle notifies organisations whose folders no cluster has used for long, and deletes those folders in the end. A
// folder is deleted WarnBefore after the notice at the earliest. It returns how many it did.
func (s *Shared) EndIdle(ctx context.Context) (int, error) {
	var now time.Time
	err := s.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		now, err = tx.Now(ctx)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read the time: %w", err)
	}
	warned, err := s.warnIdle(ctx, now)
	if err != nil {
		return warned, err
	}
	before := now.Add(-WarnBefore)
	rows, err := s.d.Q.IdleSharedFolders(ctx, dbq.IdleSharedFoldersParams{
		Before: now.Add(-KeepFor), WarnedBefore: &before, MaxRows: maxIdle,
	})
	if err != nil {
		return warned, fmt.Errorf("list idle shared folders: %w", err)
	}
	ended := 0
	for _, r := range rows {
		var idle bool
		err := s.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			folder, err := tx.Q.LockIdleSharedFolder(ctx, r.ID, &before)
			if idle = !db.NoRows(err); !idle { // it is used again
				return nil
			}
			if err != nil {
				return err
			}
			return erase(ctx, tx, folder)
		})
		if f := fault.From(err); f != nil && f.Kind == fault.Conflict {
			continue
		}
		if err == nil && idle {
			ended++
			err = s.wake(ctx, r.SharedID)
		}
		if err != nil {
			return warned + ended, fmt.Errorf("delete %s: %w", r.ID, err)
		}
	}
	return warned + ended, nil
}

func (s *Shared) warnIdle(ctx context.Context, now time.Time) (n int, err error) {
	rows, err := s.d.Q.IdleSharedFolders(ctx, dbq.IdleSharedFoldersParams{
		Before: now.Add(WarnBefore - KeepFor), Unwarned: true, MaxRows: maxIdle,
	})
	if err != nil {
		return 0, fmt.Errorf("list idle shared folders: %w", err)
	}
	for _, r := range rows {
		err := s.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return warn(ctx, tx, r, now) })
		if err != nil {
			return n, fmt.Errorf("notice of %s: %w", r.ID, err)
		}
		n++
	}
	return n, nil
}

func warn(ctx context.Context, tx *db.Tx, r dbq.IdleSharedFoldersRow, now time.Time) error {
	if n, err := tx.Q.WarnSharedFolder(ctx, r.ID); err != nil || n == 0 {
		return err
	}
	_, err := notify.Add(ctx, tx, notify.Notice{
		Org: r.OrgID, Severity: notify.Warn, Object: r.ID.String(),
		Key:   fmt.Sprintf("shared_idle:%s:%d", r.ID, r.LastAt.UnixMilli()),
		Title: "Your data on " + r.Name + " will be deleted",
		Body: fmt.Sprintf("No cluster has used your folder on the shared file system %s since %s. It is deleted after %s, "+
			"unless you rent a cluster with it before.", r.Name, r.LastAt.UTC().Format(time.DateOnly),
			now.Add(WarnBefore).UTC().Format(time.DateOnly)),
	})
	return err
}

// EraseOrg deletes the folders of an organisation that is deleted, whose clusters have ended. Its hosts do so with
// their next desired state.
func EraseOrg(ctx context.Context, tx *db.Tx, org id.Org) error {
	if err := tx.Q.DeleteSharedFoldersOfOrg(ctx, org); err != nil {
		return fmt.Errorf("delete shared folders of %s: %w", org, err)
	}
	return nil
}
