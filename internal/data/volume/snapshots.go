package volume

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// Snapshots are the snapshots of volumes.
type Snapshots struct {
	d       *db.DB
	bus     *bus.Bus // nil: hosts are not woken
	catalog *Catalog
}

// List returns a volume's snapshots, newest first. Fault: NotFound.
func (sn *Snapshots) List(ctx context.Context, org id.Org, vol id.Volume) ([]Snapshot, error) {
	if _, err := sn.catalog.Get(ctx, org, vol); err != nil {
		return nil, err
	}
	rows, err := sn.d.Q.VolumeSnapshots(ctx, vol)
	if err != nil {
		return nil, fmt.Errorf("snapshots of %s: %w", vol, err)
	}
	bad, err := sn.d.Q.FlawedOfVolume(ctx, vol)
	if err != nil {
		return nil, fmt.Errorf("lost packs of %s: %w", vol, err)
	}
	out := make([]Snapshot, len(rows))
	for i, r := range rows {
		out[i] = snapshotOf(r)
		if out[i].Lost, err = needed(r.Packs, bad); err != nil {
			return nil, fmt.Errorf("packs of snapshot %d of %s: %w", r.Seq, vol, err)
		}
	}
	return out, nil
}

func snapshotOf(r dbq.VolumeSnapshot) Snapshot {
	return Snapshot{
		ID: r.ID, Seq: r.Seq, CutAt: r.CutAt, CommittedAt: r.CommittedAt, Cause: r.Cause, Consistency: r.Consistency,
		Label: r.Label, Bytes: r.LogicalBytes, Added: r.AddedBytes, Files: r.Files, LeftOut: r.LeftOut,
		Whole: r.Whole, Lease: r.LeaseID,
	}
}

// Delete deletes a snapshot other than the last one. Faults: NotFound, Conflict.
func (sn *Snapshots) Delete(ctx context.Context, who account.Principal, vol id.Volume, seq int64) error {
	return locked(ctx, sn.d, who.Org, vol, func(ctx context.Context, tx *db.Tx, row dbq.Volume) error {
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
		if err := doom(ctx, tx, row.DomainID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, who.Event("volume.snapshot.delete", vol.String(), map[string]any{"seq": seq}))
	})
}

var errNoSnapshot = fault.New(fault.NotFound, "snapshot not found")

// Request requests a snapshot of a volume that a cluster writes, and returns the id that it will have. While one is
// requested and not committed, its id is returned. Faults: NotFound, Conflict if no cluster writes it.
func (sn *Snapshots) Request(ctx context.Context, who account.Principal, vol id.Volume) (snap id.Snapshot, err error) {
	err = locked(ctx, sn.d, who.Org, vol, func(ctx context.Context, tx *db.Tx, row dbq.Volume) error {
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
	return snap, sn.wake(ctx, vol)
}

// wake sends a request for a snapshot to the hosts that write a volume. Hosts are locked before volumes, so it has a
// transaction of its own.
func (sn *Snapshots) wake(ctx context.Context, vol id.Volume) error {
	hosts, err := sn.d.Q.HostsOfWriter(ctx, vol)
	if err != nil {
		return fmt.Errorf("hosts of %s: %w", vol, err)
	}
	return host.Wake(ctx, sn.d, sn.bus, hosts)
}

// Restore makes an earlier snapshot the volume's present state: it becomes the next snapshot, and nothing is lost.
// Faults: NotFound, Conflict while a cluster writes the volume.
func (sn *Snapshots) Restore(ctx context.Context, who account.Principal, vol id.Volume, seq int64,
	once idem.Request) (Snapshot, idem.Outcome, error) {
	return idem.Once(ctx, sn.d, once, func(ctx context.Context, tx *db.Tx) (s Snapshot, err error) {
		row, err := lockOwn(ctx, tx, who.Org, vol)
		if err != nil {
			return s, err
		}
		if row.HiddenAt != nil {
			return s, errHidden(row.Name)
		}
		if err := free(ctx, tx, vol); err != nil {
			return s, err
		}
		from, err := tx.Q.SnapshotAt(ctx, vol, seq)
		if err != nil {
			return s, fmt.Errorf("read snapshot %d of %s: %w", seq, vol, err)
		}
		if len(from) == 0 {
			return s, errNoSnapshot
		}
		next, err := copySnapshot(ctx, tx, from[0], vol, row.HeadSeq+1, "restore")
		if err != nil {
			return s, err
		}
		return next, audit.Record(ctx, tx, who.Event("volume.restore", vol.String(), map[string]any{"seq": seq}))
	})
}

// copySnapshot makes a snapshot the head of a locked volume of the same domain.
func copySnapshot(ctx context.Context, tx *db.Tx, from dbq.VolumeSnapshot, to id.Volume, seq int64,
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
func (sn *Snapshots) Clone(ctx context.Context, who account.Principal, vol id.Volume, seq int64, n NewVolume,
	once idem.Request) (Volume, idem.Outcome, error) {
	return idem.Once(ctx, sn.d, once, func(ctx context.Context, tx *db.Tx) (Volume, error) {
		row, err := lockOwn(ctx, tx, who.Org, vol)
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
		out, err := insertVolume(ctx, tx, who, row.DomainID, n)
		if err != nil {
			return Volume{}, err
		}
		s, err := copySnapshot(ctx, tx, from[0], out.ID, 1, "clone")
		if err != nil {
			return Volume{}, err
		}
		at := s.CutAt.UTC().Truncate(time.Microsecond)
		out.DurableTo, out.Bytes, out.Files, out.HeadSeq, out.Snapshots = &at, s.Bytes, s.Files, 1, 1
		return out, audit.Record(ctx, tx, who.Event("volume.clone", out.ID.String(),
			map[string]any{"from": vol.String(), "seq": seq, "name": n.Name}))
	})
}
