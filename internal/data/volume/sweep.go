package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Collector removes snapshots and packs that are not kept any more.
type Collector struct {
	d                  *db.DB
	store              store.Store   // nil: there is nothing to collect
	grace, keepUnknown time.Duration // see Config
	verifier           *verifier
}

// Sweep removes what killed uploads have left in a folder, looks for what uploads have stored, applies retention,
// collects packs that nothing needs, in all data domains, and destroys the keys of those without volumes. It returns
// how many packs it deleted. Several may run at the same time. Domains that are erased and empty are not visited again.
// For a while after a restore, no pack is deleted (see Restored).
func (gc *Collector) Sweep(ctx context.Context) (deleted int, err error) {
	if gc.store == nil {
		return 0, nil
	}
	var errs []error
	if f, ok := gc.store.(interface{ Tidy() error }); ok {
		errs = append(errs, f.Tidy())
	}
	keep, err := gc.keepsAll(ctx)
	if err != nil {
		return 0, errors.Join(append(errs, err)...)
	}
	after := id.First[id.DataDomain]()
	for {
		domains, err := gc.d.Q.SweepableDomains(ctx, after)
		if err != nil || len(domains) == 0 || ctx.Err() != nil {
			return deleted, errors.Join(append(errs, err)...)
		}
		for _, d := range domains {
			n, err := gc.sweepDomain(ctx, d, keep)
			if deleted += n; err != nil { // the others are swept all the same
				errs = append(errs, fmt.Errorf("sweep %s: %w", d, err))
			}
		}
		after = domains[len(domains)-1]
	}
}

// sweepDomain sweeps one domain; with keep, it deletes nothing in the store.
func (gc *Collector) sweepDomain(ctx context.Context, domain id.DataDomain, keep bool) (deleted int, err error) {
	seen := gc.verifier.seeUploads(ctx, domain)
	var ns []int64
	err = gc.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.Q.LockDataDomain(ctx, domain); err != nil {
			return err
		}
		if err := retain(ctx, tx, domain); err != nil {
			return err
		}
		if err := doom(ctx, tx, domain); err != nil {
			return err
		}
		if err := destroyKey(ctx, tx, domain); err != nil {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		if err := tx.Q.DropReservations(ctx, domain); err != nil || keep {
			return err
		}
		before := now.Add(-gc.grace)
		if ns, err = tx.Q.DeletablePacks(ctx, domain, &before, now); err != nil || len(ns) > 0 {
			return err
		}
		return tx.Q.SetDomainEmptied(ctx, domain)
	})
	if err != nil {
		return 0, errors.Join(seen, err)
	}
	for _, n := range ns { // no commit finds them any more
		if err := gc.store.Delete(ctx, store.Key(domain, n)); err != nil {
			return deleted, errors.Join(seen, fmt.Errorf("delete pack %d: %w", n, err))
		}
		if err := gc.d.Q.DeletePackRow(ctx, n, domain); err != nil {
			return deleted, errors.Join(seen, fmt.Errorf("forget pack %d: %w", n, err))
		}
		deleted++
	}
	return deleted, seen
}

// doom marks the packs of a locked domain that nothing needs: live ones, and those that uploads have left. From here on
// they are not billed.
func doom(ctx context.Context, tx *db.Tx, domain id.DataDomain) error {
	sets, err := tx.Q.NeededPacks(ctx, domain, agentapi.VolumeFlushMaxS)
	if err != nil {
		return fmt.Errorf("needed packs of %s: %w", domain, err)
	}
	needed := new(manifest.PackSet)
	for _, b := range sets {
		s, err := manifest.DecodePackSet(b)
		if err != nil {
			return fmt.Errorf("packs of %s: %w", domain, err)
		}
		needed.AddAll(s)
	}
	live, err := tx.Q.LivePacks(ctx, domain)
	if err != nil {
		return fmt.Errorf("live packs of %s: %w", domain, err)
	}
	var gone []int64
	for _, n := range live {
		if !needed.Has(n) {
			gone = append(gone, n)
		}
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	left, err := tx.Q.DoomAbandoned(ctx, now, time.Unix(0, 0), domain)
	if err != nil {
		return fmt.Errorf("doom packs that uploads have left in %s: %w", domain, err)
	}
	if len(gone) == 0 && left.Packs == 0 {
		return nil
	}
	bytes, err := tx.Q.DoomPacks(ctx, &now, domain, gone)
	if err != nil {
		return fmt.Errorf("doom packs of %s: %w", domain, err)
	}
	return setLevel(ctx, tx, domain, moved{bytes: -bytes, granted: left.Bytes}, now)
}

// How long snapshots are kept in addition to the last ones: one of each hour for a day, and those with a label.
const (
	keepHourly  = 24 * time.Hour
	keepLabeled = 30 * 24 * time.Hour
)

// retain deletes the snapshots of a locked domain's volumes whose time is over.
func retain(ctx context.Context, tx *db.Tx, domain id.DataDomain) error {
	vols, err := tx.Q.VolumesOfDomain(ctx, domain)
	if err != nil {
		return fmt.Errorf("volumes of %s: %w", domain, err)
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	for _, vol := range vols {
		rows, err := tx.Q.VolumeSnapshots(ctx, vol.ID)
		if err != nil {
			return fmt.Errorf("snapshots of %s: %w", vol.ID, err)
		}
		over := outlived(rows, int(vol.KeepLast), now)
		if len(over) == 0 {
			continue
		}
		_, err = tx.Q.DeleteSnapshots(ctx, dbq.DeleteSnapshotsParams{At: &now, VolumeID: vol.ID, Seqs: over})
		if err != nil {
			return fmt.Errorf("delete snapshots of %s: %w", vol.ID, err)
		}
	}
	return nil
}

// outlived returns which snapshots, newest first, are not kept any longer.
func outlived(newestFirst []dbq.VolumeSnapshot, keep int, now time.Time) (over []int64) {
	hours := map[int64]bool{}
	whole := false // one that is restored whatever the ranks have saved since
	for i, s := range newestFirst {
		age := now.Sub(s.CommittedAt)
		hour := s.CommittedAt.Unix() / 3600
		first := !hours[hour] // the newest of its hour
		hours[hour] = true
		newestWhole := s.Whole && !whole
		whole = whole || s.Whole
		if i < keep || newestWhole || age < keepHourly && first || age < keepLabeled && s.Label != "" {
			continue
		}
		over = append(over, s.Seq)
	}
	return over
}

// keepsAll reports whether no pack is deleted now, because the database was restored not long ago.
func (gc *Collector) keepsAll(ctx context.Context) (bool, error) {
	c, err := gc.d.Q.DataCheck(ctx)
	if err != nil {
		return false, fmt.Errorf("state of the store: %w", err)
	}
	at := c.DataCheck.RestoredAt
	return at != nil && c.Now.Sub(*at) < gc.keepUnknown, nil
}
