package volume

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// Delete deletes a volume with all its snapshots. What nothing else needs is not billed from this transaction on, and
// is erased from the store by the next sweeps; with the domain's last volume its key is destroyed. Faults: NotFound,
// Conflict while a cluster has it.
func (v *Volumes) Delete(ctx context.Context, who account.Principal, vol id.Volume) error {
	var domain id.DataDomain
	err := v.locked(ctx, who.Org, vol, func(ctx context.Context, tx *db.Tx, row dbq.Volume) error {
		domain = row.DomainID
		if err := v.unmounted(ctx, tx, vol); err != nil {
			return err
		}
		if err := v.delete(ctx, tx, row); err != nil {
			return err
		}
		return audit.Record(ctx, tx, who.Event("volume.delete", vol.String(), map[string]any{"name": row.Name}))
	})
	if err != nil {
		return err
	}
	err = v.charge(ctx, domain)
	if err != nil && !db.NoRows(err) { // no row: nothing was ever stored. Else the meter is due, and the job charges it.
		v.cfg.Log.Warn("a deleted volume could not be charged at once", "volume", vol, "err", err)
	}
	return nil
}

// delete deletes a locked volume.
func (v *Volumes) delete(ctx context.Context, tx *db.Tx, row dbq.Volume) error {
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	for _, readers := range []bool{false, true} {
		if err := tx.Q.CloseDataSessions(ctx, row.ID, readers, id.New[id.DataSession]()); err != nil {
			return fmt.Errorf("close sessions of %s: %w", row.ID, err)
		}
	}
	if err := tx.Q.DeleteVolumeWriter(ctx, row.ID); err != nil {
		return fmt.Errorf("end the writer of %s: %w", row.ID, err)
	}
	_, err = tx.Q.DeleteSnapshots(ctx, dbq.DeleteSnapshotsParams{
		At: &now, VolumeID: row.ID, Seqs: []int64{}, Everything: true,
	})
	if err != nil {
		return fmt.Errorf("delete snapshots of %s: %w", row.ID, err)
	}
	if err := tx.Q.SetVolumeDeleted(ctx, &now, row.ID); err != nil {
		return fmt.Errorf("delete %s: %w", row.ID, err)
	}
	if err := v.doom(ctx, tx, row.DomainID); err != nil {
		return err
	}
	if err := tx.Q.SetMeterDue(ctx, row.DomainID); err != nil {
		return fmt.Errorf("set the meter of %s due: %w", row.DomainID, err)
	}
	return v.destroyKey(ctx, tx, row.DomainID)
}

// DeleteSnapshot deletes a snapshot other than the last one. Faults: NotFound, Conflict.
func (v *Volumes) DeleteSnapshot(ctx context.Context, who account.Principal, vol id.Volume, seq int64) error {
	return v.locked(ctx, who.Org, vol, func(ctx context.Context, tx *db.Tx, row dbq.Volume) error {
		if seq == row.HeadSeq {
			return fault.New(fault.Conflict, "the last snapshot is the volume's present state: take another one first, or "+
				"delete the volume")
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		n, err := tx.Q.DeleteSnapshots(ctx, dbq.DeleteSnapshotsParams{At: &now, VolumeID: vol, Seqs: []int64{seq}})
		if err != nil {
			return fmt.Errorf("delete snapshot %d of %s: %w", seq, vol, err)
		}
		if n == 0 {
			return errNoSnapshot
		}
		if err := v.doom(ctx, tx, row.DomainID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, who.Event("volume.snapshot.delete", vol.String(), map[string]any{"seq": seq}))
	})
}

var errNoSnapshot = fault.New(fault.NotFound, "snapshot not found")

// Request requests a snapshot of a volume that a cluster writes, and returns the id that it will have. While one is
// requested and not committed, its id is returned. Faults: NotFound, Conflict if no cluster writes it.
func (v *Volumes) Request(ctx context.Context, who account.Principal, vol id.Volume) (snap id.Snapshot, err error) {
	err = v.locked(ctx, who.Org, vol, func(ctx context.Context, tx *db.Tx, row dbq.Volume) error {
		hosts, err := tx.Q.HostsOfWriter(ctx, vol)
		if err != nil {
			return fmt.Errorf("hosts of %s: %w", vol, err)
		}
		if len(hosts) == 0 {
			return fault.New(fault.Conflict, "no cluster writes the volume now, so there is nothing to take a snapshot of")
		}
		if snap = row.WantedID; !snap.IsZero() {
			return nil
		}
		snap = id.New[id.Snapshot]()
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		if err := tx.Q.SetVolumeWanted(ctx, snap, &now, vol); err != nil {
			return fmt.Errorf("request a snapshot of %s: %w", vol, err)
		}
		// The agents that read the desired state now find it there.
		return audit.Record(ctx, tx, who.Event("volume.snapshot", vol.String(), map[string]any{"snapshot": snap.String()}))
	})
	if err != nil {
		return snap, err
	}
	return snap, v.wake(ctx, vol)
}

// wake sends a request for a snapshot to the hosts that write a volume. Hosts are locked before volumes, so it has a
// transaction of its own.
func (v *Volumes) wake(ctx context.Context, vol id.Volume) error {
	hosts, err := v.d.Q.HostsOfWriter(ctx, vol)
	if err != nil {
		return fmt.Errorf("hosts of %s: %w", vol, err)
	}
	return host.Wake(ctx, v.d, v.cfg.Bus, hosts)
}

// Restore makes an earlier snapshot the volume's present state: it becomes the next snapshot, and nothing is lost.
// Faults: NotFound, Conflict while a cluster writes the volume.
func (v *Volumes) Restore(ctx context.Context, who account.Principal, vol id.Volume, seq int64,
	once idem.Request) (Snapshot, idem.Outcome, error) {
	return idem.Once(ctx, v.d, once, func(ctx context.Context, tx *db.Tx) (s Snapshot, err error) {
		row, err := v.lockOwn(ctx, tx, who.Org, vol)
		if err != nil {
			return s, err
		}
		if row.HiddenAt != nil {
			return s, errHidden(row.Name)
		}
		if err := v.free(ctx, tx, vol); err != nil {
			return s, err
		}
		from, err := tx.Q.SnapshotAt(ctx, vol, seq)
		if err != nil {
			return s, fmt.Errorf("read snapshot %d of %s: %w", seq, vol, err)
		}
		if len(from) == 0 {
			return s, errNoSnapshot
		}
		next, err := v.copy(ctx, tx, from[0], vol, row.HeadSeq+1, "restore")
		if err != nil {
			return s, err
		}
		return next, audit.Record(ctx, tx, who.Event("volume.restore", vol.String(), map[string]any{"seq": seq}))
	})
}

func (v *Volumes) lockOwn(ctx context.Context, tx *db.Tx, org id.Org, vol id.Volume) (dbq.Volume, error) {
	row, err := tx.Q.LockVolume(ctx, vol)
	if db.NoRows(err) || err == nil && (row.OrgID != org || row.DeletedAt != nil) {
		return row, errNone
	}
	if err != nil {
		return row, fmt.Errorf("lock %s: %w", vol, err)
	}
	return row, nil
}

// copy makes a snapshot the head of a locked volume of the same domain.
func (v *Volumes) copy(ctx context.Context, tx *db.Tx, from dbq.VolumeSnapshot, to id.Volume, seq int64,
	cause string) (Snapshot, error) {
	now, err := tx.Now(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	snap := id.New[id.Snapshot]()
	err = tx.Q.CopySnapshot(ctx, dbq.CopySnapshotParams{
		VolumeID: to, Seq: seq, ID: snap, At: now, Cause: cause, FromID: from.ID,
	})
	if err == nil {
		err = tx.Q.SetVolumeHead(ctx, seq, to)
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("copy %s to %s: %w", from.ID, to, err)
	}
	s := snapshotOf(from)
	s.ID, s.Seq, s.CommittedAt, s.Cause, s.Added, s.Lease = snap, seq, now, cause, 0, id.Lease{}
	return s, nil
}

// Clone creates a volume with the content of a snapshot, or of the last one if seq is 0. It shares the chunks, and
// costs nothing until it changes. Faults: NotFound, Invalid, Conflict, QuotaExceeded.
func (v *Volumes) Clone(ctx context.Context, who account.Principal, vol id.Volume, seq int64, n NewVolume,
	once idem.Request) (Volume, idem.Outcome, error) {
	return idem.Once(ctx, v.d, once, func(ctx context.Context, tx *db.Tx) (Volume, error) {
		row, err := v.lockOwn(ctx, tx, who.Org, vol)
		if err != nil {
			return Volume{}, err
		}
		if row.HiddenAt != nil {
			return Volume{}, errHidden(row.Name)
		}
		if n.SizeGB == 0 {
			n.SizeGB = row.SizeLimit / GB
		}
		if err := n.check(); err != nil {
			return Volume{}, err
		}
		if seq == 0 {
			seq = row.HeadSeq
		}
		from, err := tx.Q.SnapshotAt(ctx, vol, seq)
		if err != nil {
			return Volume{}, fmt.Errorf("read snapshot %d of %s: %w", seq, vol, err)
		}
		if len(from) == 0 {
			return Volume{}, errNoSnapshot
		}
		out, err := v.insert(ctx, tx, who, row.DomainID, n)
		if err != nil {
			return Volume{}, err
		}
		s, err := v.copy(ctx, tx, from[0], out.ID, 1, "clone")
		if err != nil {
			return Volume{}, err
		}
		at := s.CutAt.UTC().Truncate(time.Microsecond)
		out.DurableTo, out.Bytes, out.Files, out.HeadSeq, out.Snapshots = &at, s.Bytes, s.Files, 1, 1
		return out, audit.Record(ctx, tx, who.Event("volume.clone", out.ID.String(),
			map[string]any{"from": vol.String(), "seq": seq, "name": n.Name}))
	})
}

// free refuses a locked volume that has a current writer, and removes a writer that has ended.
func (v *Volumes) free(ctx context.Context, tx *db.Tx, vol id.Volume) error {
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	rows, err := tx.Q.VolumeWriters(ctx, id.UUIDs(vol))
	if err != nil {
		return fmt.Errorf("writer of %s: %w", vol, err)
	}
	for _, r := range rows {
		if why := writes(r, now); why != "" {
			f := fault.New(fault.Conflict, "the volume is %s", why)
			f.Extra = map[string]any{"reason": "volume_in_use"}
			if !r.ClusterID.IsZero() {
				f.Extra["cluster_id"] = r.ClusterID.String()
			}
			return f
		}
	}
	return v.endWriter(ctx, tx, vol)
}
