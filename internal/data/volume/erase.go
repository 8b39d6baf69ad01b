package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// EraseOrg deletes the volumes of an organisation that loses its last member, and the names that people gave to them
// and to snapshots. Fault: Conflict while a cluster has one.
func EraseOrg(ctx context.Context, tx *db.Tx, org id.Org) error {
	err := deleteAll(ctx, tx, org, func(row dbq.Volume) error { return unmounted(ctx, tx, row.ID) })
	if err != nil {
		return err
	}
	if err := errors.Join(tx.Q.EraseVolumeNames(ctx, org), tx.Q.EraseSnapshotLabels(ctx, org),
		tx.Q.EraseSessionProblems(ctx, org)); err != nil {
		return fmt.Errorf("erase the names of volumes of %s: %w", org, err)
	}
	return nil
}

// EndTakenOver deletes the volumes of an organisation that another person may have set up with its owner's e-mail
// address: they would use up what the owner pays in. What clusters that are being released still send is refused.
func EndTakenOver(ctx context.Context, tx *db.Tx, org id.Org) error {
	return deleteAll(ctx, tx, org, func(row dbq.Volume) error {
		return audit.Record(ctx, tx, audit.Event{Org: org, Action: "volume.delete", Object: row.ID.String()})
	})
}

// deleteAll deletes the organisation's volumes that f allows.
func deleteAll(ctx context.Context, tx *db.Tx, org id.Org, f func(dbq.Volume) error) error {
	if _, err := tx.Q.LockDomainsOfOrg(ctx, org); err != nil {
		return fmt.Errorf("lock data domains of %s: %w", org, err)
	}
	rows, err := tx.Q.LockLivingVolumes(ctx, org) // after the domains, so that no clone is missed
	if err != nil {
		return fmt.Errorf("lock volumes of %s: %w", org, err)
	}
	for _, row := range rows {
		if err := f(row); err != nil {
			return err
		}
		if err := deleteVolume(ctx, tx, row); err != nil {
			return err
		}
	}
	return nil
}

// unmounted refuses a locked volume that a cluster has.
func unmounted(ctx context.Context, tx *db.Tx, vol id.Volume) error {
	n, err := tx.Q.LiveMounts(ctx, vol)
	if err != nil {
		return fmt.Errorf("clusters with %s: %w", vol, err)
	}
	if n > 0 {
		return fault.New(fault.Conflict, "the volume is mounted in running clusters (%d): release them first", n)
	}
	return nil
}

// destroyKey destroys the key of a locked domain without volumes, so that what the store may keep of it cannot be
// read. The hosts of a cluster whose volume was erased still get the key in their desired state: it stays until the
// cluster and its leases have ended, and a sweep destroys it.
func destroyKey(ctx context.Context, tx *db.Tx, domain id.DataDomain) error {
	if err := tx.Q.EraseDataDomain(ctx, domain); err != nil {
		return fmt.Errorf("destroy the key of %s: %w", domain, err)
	}
	return nil
}
