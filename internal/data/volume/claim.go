package volume

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Mount is a volume that a cluster is to have.
type Mount struct {
	Volume id.Volume
	Mode   string // an agentapi.Mount constant
	Lazy   bool   // it is read on demand
	At     string // the field that names it, for messages: "mounts[0].volume"
}

// notFound refuses a volume that the organisation does not have. Another organisation's volume is refused in the same
// words as one that does not exist.
func (m Mount) notFound(bad *fault.Fields) { bad.Add(m.At, "volume %s not found", m.Volume) }

// Sizes are the limits of size, in bytes, of volumes that an organisation has.
type Sizes map[id.Volume]int64

// ReadSizes reads the limits of those volumes that the organisation has. Call it outside of transactions.
func ReadSizes(ctx context.Context, q *dbq.Queries, org id.Org, mounts []Mount) (Sizes, error) {
	if len(mounts) == 0 {
		return nil, nil
	}
	rows, err := q.VolumeSizes(ctx, org, idsOf(mounts))
	if err != nil {
		return nil, fmt.Errorf("read sizes of volumes of %s: %w", org, err)
	}
	out := Sizes{}
	for _, r := range rows {
		out[r.ID] = r.SizeLimit
	}
	return out, nil
}

// Check refuses volumes that are not among s, for a quote. A rent also decides who may write: see Claims.
// Fault: Invalid, with the field.
func (s Sizes) Check(mounts []Mount) error {
	var bad fault.Fields
	for _, m := range mounts {
		if _, ok := s[m.Volume]; !ok {
			m.notFound(&bad)
		}
	}
	return bad.Err()
}

func idsOf(mounts []Mount) []pgtype.UUID {
	ids := make([]id.Volume, len(mounts))
	for i, m := range mounts {
		ids[i] = m.Volume
	}
	return id.UUIDs(ids...)
}

// Claims are the volumes of a rent, locked.
type Claims struct {
	org     id.Org
	mounts  []Mount
	locked  map[id.Volume]dbq.LockVolumesRow
	writers map[id.Volume]dbq.VolumeWritersRow
}

// QueueClaims queues the locks of the volumes of a rent and the reads of who writes them. Its place in the order of
// locks is after hosts and before the ledger's accounts.
func QueueClaims(b *pgx.Batch, org id.Org, mounts []Mount) *Claims {
	c := &Claims{org: org, mounts: mounts, locked: map[id.Volume]dbq.LockVolumesRow{},
		writers: map[id.Volume]dbq.VolumeWritersRow{}}
	if len(mounts) == 0 {
		return c
	}
	ids := idsOf(mounts)
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.LockVolumes(ctx, ids, org)
		for _, r := range rows {
			c.locked[r.ID] = r
		}
		return err
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.VolumeWriters(ctx, ids)
		for _, r := range rows {
			c.writers[r.VolumeID] = r
		}
		return err
	})
	return c
}

// Decide refuses volumes that do not exist, and a second writer. Faults: Invalid and Conflict, with the field.
func (c *Claims) Decide(now time.Time) error {
	var bad fault.Fields
	for _, m := range c.mounts {
		v, ok := c.locked[m.Volume]
		if !ok {
			m.notFound(&bad)
			continue
		}
		if m.Mode == agentapi.MountRO {
			continue
		}
		if why := writes(c.writers[m.Volume], now); why != "" {
			what := "release that cluster"
			if c.writers[m.Volume].ClusterID.IsZero() {
				what = "wait for its end"
			}
			f := fault.New(fault.Conflict, "The volume %s is %s: %s, or mount it with mode ro.", v.Name, why, what)
			f.Fields = []fault.Field{{Location: m.At, Message: "is " + why}}
			return f
		}
	}
	return bad.Err()
}

// QueueWrite queues the writes of the claims of a cluster, which exists. A writer before it is fenced from here on.
func (c *Claims) QueueWrite(b *pgx.Batch, cluster id.Cluster) {
	for _, m := range c.mounts {
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
			return q.InsertVolumeMount(ctx, dbq.InsertVolumeMountParams{ClusterID: cluster, VolumeID: m.Volume, Mode: m.Mode,
				Lazy: m.Lazy})
		})
		if m.Mode == agentapi.MountRO {
			continue
		}
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
			return q.CloseDataSessions(ctx, m.Volume, false, id.New[id.DataSession]())
		})
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
			return q.SetVolumeWriter(ctx, m.Volume, cluster, id.DataSession{})
		})
	}
}

// writes returns why the volume's writer may still write, or "". A cluster that ended may write until its host has
// closed the session, has nothing left of the lease, or the time to flush is over; a lost host may not.
func writes(w dbq.VolumeWritersRow, now time.Time) string {
	switch {
	case w.VolumeID.IsZero():
		return ""
	case w.ClusterID.IsZero(): // an upload
		if w.ClosedAt != nil || w.ExpiresAt != nil && now.After(*w.ExpiresAt) {
			return ""
		}
		return "written by an upload"
	case w.ClusterEndedAt == nil:
		return fmt.Sprintf("written by the cluster %s", w.ClusterName)
	case w.RanksWrite && now.Before(w.ClusterEndedAt.Add(agentapi.VolumeFlushMaxS*time.Second)):
	case w.SessionID.IsZero(), w.ClosedAt != nil, w.Lost, w.AllLost, w.LeaseGoneAt != nil,
		now.After(w.ClusterEndedAt.Add(agentapi.VolumeFlushMaxS * time.Second)):
		return ""
	}
	return fmt.Sprintf("still being saved for the cluster %s, which has ended", w.ClusterName)
}

// endWriter fences the last writer of a locked volume.
func endWriter(ctx context.Context, tx *db.Tx, vol id.Volume) error {
	err := tx.Q.CloseDataSessions(ctx, vol, false, id.New[id.DataSession]())
	if err == nil {
		err = tx.Q.DeleteVolumeWriter(ctx, vol)
	}
	if err != nil {
		return fmt.Errorf("end the writer of %s: %w", vol, err)
	}
	return nil
}

// free refuses a locked volume that has a current writer, and removes a writer that has ended.
func free(ctx context.Context, tx *db.Tx, vol id.Volume) error {
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
	return endWriter(ctx, tx, vol)
}
