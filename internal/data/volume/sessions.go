package volume

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// sessions are the sessions of those that read and write volumes: runs of leases, and transfers. A session that may
// not write any more is fenced.
type sessions struct {
	d       *db.DB
	without string // a check that tests leave out, to see that it is needed; "" outside of tests
}

// Checks that tests leave out.
const (
	withoutPackCheck = "pack check"
	withoutFence     = "fence"
)

// read reads a session and refuses one that is fenced.
func (ss *sessions) read(ctx context.Context, q *dbq.Queries,
	session id.DataSession) (s dbq.DataSessionRow, err error) {
	rows, err := q.DataSession(ctx, agentapi.VolumeFlushMaxS, session)
	if err != nil {
		return s, fmt.Errorf("read session %s: %w", session, err)
	}
	if len(rows) == 0 {
		return s, errNoVolume
	}
	s = rows[0]
	x := s.DataSession
	if ss.without == withoutFence {
		return s, nil
	}
	switch {
	case x.ClosedAt != nil, s.VolumeDeletedAt != nil, x.Mode != agentapi.MountRO && !s.Writes:
		return s, errFenced
	case x.LeaseID.IsZero():
		if s.UploadOver {
			return s, errFenced
		}
		if x.Mode == agentapi.MountRO && time.Now().After(x.ExpiresAt) { // its snapshot may be collected
			return s, errFenced
		}
		return s, nil
	case s.LeaseEpoch == nil || *s.LeaseEpoch != x.Epoch || s.LeaseGoneAt != nil || s.FlushOver:
		return s, errFenced
	}
	return s, nil
}

// inDomain runs f with the data domain of a session locked, if it may write.
func (ss *sessions) inDomain(ctx context.Context, session id.DataSession,
	f func(context.Context, *db.Tx, dbq.DataSession, dbq.DataDomain) error) error {
	return ss.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		s, err := ss.read(ctx, tx.Q, session)
		if err != nil {
			return err
		}
		d, err := tx.Q.LockDataDomain(ctx, s.DataSession.DomainID)
		if err != nil {
			return fmt.Errorf("lock %s: %w", s.DataSession.DomainID, err)
		}
		if s, err = ss.read(ctx, tx.Q, session); err != nil { // under the lock
			return err
		}
		if s.DataSession.Mode == agentapi.MountRO {
			return refused(agentapi.VolumeFenced, "the volume is mounted read-only")
		}
		if err := tx.Q.RenewDataSession(ctx, lifeOf(s.DataSession).Seconds(), session); err != nil {
			return fmt.Errorf("renew %s: %w", session, err)
		}
		return f(ctx, tx, s.DataSession, d)
	})
}

// open returns the session of a run, and what it restores.
func (ss *sessions) open(ctx context.Context, who run, mode string) (out *agentapi.OpenedVolume, err error) {
	err = ss.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		row, err := tx.Q.LockVolume(ctx, who.volume)
		if db.NoRows(err) {
			return errNoVolume
		}
		if err != nil {
			return fmt.Errorf("lock %s: %w", who.volume, err)
		}
		leases, err := tx.Q.LeaseOfMount(ctx, who.volume, who.lease, who.host)
		if err != nil {
			return fmt.Errorf("lease of %s: %w", who.volume, err)
		}
		if len(leases) == 0 || leases[0].Mode != mode {
			return errNoVolume
		}
		l := leases[0]
		if l.Epoch != who.epoch || l.GoneAt != nil {
			return errFenced
		}
		have, err := tx.Q.SessionOfRun(ctx, who.volume, who.lease, who.epoch)
		if err != nil {
			return fmt.Errorf("session of %s: %w", who.lease, err)
		}
		var x dbq.DataSession
		switch {
		case len(have) > 0:
			if s, err := ss.read(ctx, tx.Q, have[0].ID); err != nil {
				return err
			} else if x = s.DataSession; x.ClosedAt != nil {
				return errFenced
			}
		case l.EndedAt != nil:
			return errFenced
		default:
			if x, err = ss.begin(ctx, tx, row, who, l); err != nil {
				return err
			}
		}
		out, err = openedVolume(ctx, tx.Q, x)
		return err
	})
	return out, err
}

// begin makes the session of a run. Of a volume that is written, it becomes the writer: the cluster's claim is checked,
// and earlier runs are fenced.
func (ss *sessions) begin(ctx context.Context, tx *db.Tx, row dbq.Volume, who run,
	l dbq.LeaseOfMountRow) (x dbq.DataSession, err error) {
	mode, cluster := l.Mode, l.ClusterID
	var writer dbq.VolumeWritersRow
	if mode != agentapi.MountRO {
		writers, err := tx.Q.VolumeWriters(ctx, id.UUIDs(row.ID))
		if err != nil {
			return x, fmt.Errorf("writer of %s: %w", row.ID, err)
		}
		if len(writers) == 0 || writers[0].ClusterID != cluster {
			return x, refused(agentapi.VolumeInUse, "another cluster writes the volume")
		}
		writer = writers[0]
	}
	from, err := beginsWith(ctx, tx, row, who, mode, writer)
	if err != nil {
		return x, err
	}
	base, packs := int64(0), []byte{}
	if from != nil {
		base, packs = from.Seq, from.Packs
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return x, err
	}
	x, err = tx.Q.InsertDataSession(ctx, dbq.InsertDataSessionParams{
		ID: id.New[id.DataSession](), VolumeID: row.ID, DomainID: row.DomainID, Mode: mode, LeaseID: who.lease,
		Epoch: who.epoch, HostID: who.host, BaseSeq: base, BasePacks: packs, ExpiresAt: now.Add(sessionLife),
	})
	if err != nil {
		return x, fmt.Errorf("open a session of %s: %w", row.ID, err)
	}
	switch mode {
	case agentapi.MountRO:
		return x, tx.Q.CloseSessionsOfLease(ctx, row.ID, who.lease, who.epoch)
	case agentapi.MountRanks:
		return x, holdRank(ctx, tx, x, l.Rank, from)
	}
	err = tx.Q.CloseDataSessions(ctx, row.ID, false, x.ID)
	if err == nil {
		err = tx.Q.SetVolumeWriter(ctx, row.ID, cluster, x.ID)
	}
	if err != nil {
		return x, fmt.Errorf("become the writer of %s: %w", row.ID, err)
	}
	return x, nil
}

// openedVolume is the reply to an open.
func openedVolume(ctx context.Context, q *dbq.Queries, x dbq.DataSession) (*agentapi.OpenedVolume, error) {
	out := &agentapi.OpenedVolume{Session: x.ID.String(), HeadSeq: x.BaseSeq}
	if x.BaseSeq == 0 {
		return out, nil
	}
	base, err := q.PinnedSnapshot(ctx, x.VolumeID, x.BaseSeq)
	if err != nil {
		return nil, fmt.Errorf("base of %s: %w", x.ID, err)
	}
	if len(base) > 0 {
		out.Base = wireSnapshot(base[0])
	}
	return out, nil
}

func wireSnapshot(s dbq.VolumeSnapshot) *agentapi.Snapshot {
	return &agentapi.Snapshot{
		ID: s.ID.String(), Seq: s.Seq, Packs: s.Packs, Label: s.Label, LogicalBytes: s.LogicalBytes, Files: s.Files,
		CutAtMS: s.CutAt.UnixMilli(), Root: wirePlace(refOf(s)),
	}
}

// report stores what is not durable yet.
func (ss *sessions) report(ctx context.Context, x dbq.DataSession, r agentapi.VolumeReport) error {
	var sending id.Snapshot
	if r.Snapshot != "" {
		var err error
		if sending, err = id.Parse[id.Snapshot](r.Snapshot); err != nil {
			return refused(agentapi.VolumeMalformed, "the snapshot's id is malformed")
		}
	}
	_, err := ss.d.Q.ReportDataSession(ctx, dbq.ReportDataSessionParams{
		ID: x.ID, PendingBytes: max(0, r.PendingBytes), FlushEtaS: max(0, r.FlushETAS), SendingID: sending,
		Sent: max(0, r.Sent), Total: max(0, r.Total), Problem: clip(r.Problem), Seconds: lifeOf(x).Seconds(),
	})
	if err != nil {
		return fmt.Errorf("report of %s: %w", x.ID, err)
	}
	return nil
}
