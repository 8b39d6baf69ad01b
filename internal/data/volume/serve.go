package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// refused is a reply of Serve that is an error.
func refused(code, format string, args ...any) *agentapi.VolumeError {
	return &agentapi.VolumeError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Refusals that several requests share.
var (
	errFenced   = refused(agentapi.VolumeFenced, "this run of the lease does not write the volume any more")
	errNoVolume = refused(agentapi.VolumeNotFound, "the lease has no such volume")
)

// Serve answers a host's request about a volume of one of its leases. Every error is in the reply; those that only the
// log may see are logged.
func (v *Volumes) Serve(ctx context.Context, h id.Host, r agentapi.VolumeRequest) agentapi.VolumeReply {
	reply, err := v.serve(ctx, h, r)
	if err == nil {
		return reply
	}
	var e *agentapi.VolumeError
	if !errors.As(err, &e) {
		v.cfg.Log.Error("a host's request about a volume failed", "host", h, "what", r.Op, "volume", r.Volume, "err", err)
		e = refused(agentapi.VolumeAway, "the control plane cannot answer now")
	}
	return agentapi.VolumeReply{Error: e}
}

// run is whose request it is.
type run struct {
	host   id.Host
	lease  id.Lease
	epoch  int32
	volume id.Volume
}

func (v *Volumes) serve(ctx context.Context, h id.Host, r agentapi.VolumeRequest) (agentapi.VolumeReply, error) {
	var out agentapi.VolumeReply
	if v.store == nil {
		return out, errNoVolume
	}
	vol, err := id.Parse[id.Volume](r.Volume)
	lease, err2 := id.Parse[id.Lease](r.Lease)
	if err != nil || err2 != nil || r.Epoch < 1 || int64(r.Epoch) > 1<<31-1 {
		return out, refused(agentapi.VolumeMalformed, "volume, lease or epoch are malformed")
	}
	who := run{h, lease, int32(r.Epoch), vol}
	if r.Op == agentapi.VolumeOpen && r.Open != nil {
		out.Open, err = v.open(ctx, who, r.Open.Mode)
		return out, err
	}
	session, err := id.Parse[id.DataSession](r.Session)
	if err != nil {
		return out, refused(agentapi.VolumeMalformed, "the session is malformed")
	}
	s, err := v.session(ctx, v.d.Q, session)
	if err != nil {
		return out, err
	}
	if x := s.DataSession; x.VolumeID != vol || x.LeaseID != lease || x.Epoch != who.epoch || x.HostID != h {
		return out, errNoVolume
	}
	err = v.inSession(ctx, s, r, &out)
	return out, err
}

func (v *Volumes) inSession(ctx context.Context, s dbq.DataSessionRow, r agentapi.VolumeRequest,
	out *agentapi.VolumeReply) (err error) {
	x := s.DataSession
	switch {
	case r.Op == agentapi.VolumeReserve && r.Reserve != nil:
		out.Reserve, err = v.reserve(ctx, x.ID, r.Reserve.Count)
	case r.Op == agentapi.VolumeGrant && r.Grant != nil:
		out.Grant, err = v.grant(ctx, x.ID, *r.Grant)
	case r.Op == agentapi.VolumeCommit && r.Commit != nil:
		out.Commit, err = v.commit(ctx, x.ID, *r.Commit)
	case r.Op == agentapi.VolumePrepare && r.Prepare != nil:
		out.Prepare, err = v.prepare(ctx, x.ID, *r.Prepare)
	case r.Op == agentapi.VolumeRead && r.Read != nil:
		out.Read, err = v.read(ctx, s, r.Read.Packs)
	case r.Op == agentapi.VolumeReports && r.Report != nil:
		err = v.report(ctx, x, *r.Report)
	case r.Op == agentapi.VolumeClose && r.Close != nil:
		err = v.d.Q.CloseDataSession(ctx, max(0, r.Close.LostBytes), x.ID)
	default:
		err = refused(agentapi.VolumeMalformed, "unknown operation, or its field is missing")
	}
	return err
}

// session reads a session and refuses one that is fenced.
func (v *Volumes) session(ctx context.Context, q *dbq.Queries,
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
	if v.without == withoutFence {
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

// open returns the session of a run, and what it restores.
func (v *Volumes) open(ctx context.Context, who run, mode string) (out *agentapi.OpenedVolume, err error) {
	err = v.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
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
			if s, err := v.session(ctx, tx.Q, have[0].ID); err != nil {
				return err
			} else if x = s.DataSession; x.ClosedAt != nil {
				return errFenced
			}
		case l.EndedAt != nil:
			return errFenced
		default:
			if x, err = v.begin(ctx, tx, row, who, l); err != nil {
				return err
			}
		}
		out, err = v.opened(ctx, tx.Q, x)
		return err
	})
	return out, err
}

// begin makes the session of a run. Of a volume that is written, it becomes the writer: the cluster's claim is checked,
// and earlier runs are fenced.
func (v *Volumes) begin(ctx context.Context, tx *db.Tx, row dbq.Volume, who run,
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
	from, err := v.beginsWith(ctx, tx, row, who, mode, writer)
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
		return x, v.holdRank(ctx, tx, x, l.Rank, from)
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

// opened is the reply to an open.
func (v *Volumes) opened(ctx context.Context, q *dbq.Queries, x dbq.DataSession) (*agentapi.OpenedVolume, error) {
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
func (v *Volumes) report(ctx context.Context, x dbq.DataSession, r agentapi.VolumeReport) error {
	var sending id.Snapshot
	if r.Snapshot != "" {
		var err error
		if sending, err = id.Parse[id.Snapshot](r.Snapshot); err != nil {
			return refused(agentapi.VolumeMalformed, "the snapshot's id is malformed")
		}
	}
	_, err := v.d.Q.ReportDataSession(ctx, dbq.ReportDataSessionParams{
		ID: x.ID, PendingBytes: max(0, r.PendingBytes), FlushEtaS: max(0, r.FlushETAS), SendingID: sending,
		Sent: max(0, r.Sent), Total: max(0, r.Total), Problem: clip(r.Problem), Seconds: lifeOf(x).Seconds(),
	})
	if err != nil {
		return fmt.Errorf("report of %s: %w", x.ID, err)
	}
	return nil
}
