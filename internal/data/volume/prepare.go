package volume

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/slots"
)

// A volume with mode ranks has a copy on the host of every rank. A rank prepares a snapshot of its copy, a shard, whose
// packs are stored then. The shards of a round are committed together: one transaction makes one snapshot, which is the
// volume's head with what each of the ranks has changed since its own last commit (manifest.Merger). A shard without a
// round is committed alone, in the same way.

// rounds commits what the ranks of a cluster have prepared.
type rounds struct {
	d        *db.DB
	store    store.Store
	box      *seal.Box
	sessions *sessions
	packs    *packs
	commits  *commits
	verifier *verifier
	limiter  *limiter

	merges  slots.Slots // merges under way
	merging sync.Map    // by id.Volume: a merge of its ranks' files is under way
	merged  func()      // called between a merge and its commit; in tests
}

// prepare notes a rank's shard and commits its round if it is the last one. Repeated, it returns what was committed.
func (rs *rounds) prepare(ctx context.Context, session id.DataSession,
	q agentapi.PrepareVolume) (*agentapi.PreparedVolume, error) {
	p, err := parseCommit(q.CommitVolume)
	if err != nil {
		return nil, err
	}
	round, err := roundOf(q)
	if err != nil {
		return nil, err
	}
	s, err := rs.sessions.read(ctx, rs.d.Q, session)
	if err != nil {
		return nil, err
	}
	if s.DataSession.Mode != agentapi.MountRanks {
		return nil, refused(agentapi.VolumeMalformed, "the volume is not mounted with mode ranks")
	}
	if q.Withdraw {
		return rs.withdraw(ctx, session, p)
	}
	if err := rs.verifier.verify(ctx, s.DataSession, p.firsts, p.lasts); err != nil {
		return nil, err
	}
	var out *agentapi.PreparedVolume
	err = rs.sessions.inDomain(ctx, session, func(ctx context.Context, tx *db.Tx, x dbq.DataSession,
		_ dbq.DataDomain) error {
		out, err = rs.note(ctx, tx, x, p, round)
		return err
	})
	if out != nil || err != nil {
		return out, err
	}
	return rs.complete(ctx, s.DataSession, p.snapshot, round)
}

// roundOf names the shards that are committed together with one. Only jobs and renters can mean all ranks; what a host
// does by itself, it does for its rank.
func roundOf(q agentapi.PrepareVolume) (string, error) {
	switch {
	case !q.AllRanks && q.Cause != agentapi.SnapshotByRequest:
		return "", nil
	case q.AllRanks && q.Cause == agentapi.SnapshotByRequest:
		return "request:" + q.Snapshot, nil
	case q.AllRanks && q.Cause == agentapi.SnapshotByJob && q.Label != "":
		return "label:" + q.Label, nil
	}
	return "", refused(agentapi.VolumeMalformed, "a snapshot of all ranks has a label, or was requested by the renter")
}

// shardOfSession returns the rank's copy that a session writes.
func shardOfSession(ctx context.Context, q *dbq.Queries, session id.DataSession) (dbq.VolumeShard, error) {
	rows, err := q.ShardOfSession(ctx, session)
	if err != nil {
		return dbq.VolumeShard{}, fmt.Errorf("shard of %s: %w", session, err)
	}
	if len(rows) == 0 {
		return dbq.VolumeShard{}, errFenced
	}
	return rows[0], nil
}

// done returns the answer about a shard that was committed, or nil.
func done(h dbq.VolumeShard, snap id.Snapshot) *agentapi.PreparedVolume {
	if h.DoneID != snap || h.DoneAt == nil {
		return nil
	}
	return &agentapi.PreparedVolume{Seq: h.DoneSeq, Snapshot: h.DoneAs.String(), CommittedAtMS: h.DoneAt.UnixMilli()}
}

// note stores a shard, with its data domain locked. It returns an answer if the shard is committed already.
func (rs *rounds) note(ctx context.Context, tx *db.Tx, x dbq.DataSession, p parsed,
	round string) (*agentapi.PreparedVolume, error) {
	row, err := tx.Q.LockVolume(ctx, x.VolumeID)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", x.VolumeID, err)
	}
	h, err := shardOfSession(ctx, tx.Q, x.ID)
	if err != nil {
		return nil, err
	}
	if out := done(h, p.snapshot); out != nil {
		return out, nil
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case h.PreparedID == p.snapshot && h.Problem != "":
		return nil, refused(agentapi.VolumeConflict, "%s", h.Problem)
	case p.BaseSeq != x.BaseSeq:
		return nil, refused(agentapi.VolumeBaseMoved, "the rank's last commit is %d, not %d", x.BaseSeq, p.BaseSeq)
	case p.Cause == agentapi.SnapshotByInterval && h.DoneAt != nil && now.Sub(*h.DoneAt) < minInterval:
		return nil, refused(agentapi.VolumeTooSoon, "snapshots by interval are at least %s apart", minInterval)
	case p.Cause == agentapi.SnapshotByRequest && row.WantedID != p.snapshot:
		return nil, refused(agentapi.VolumeMalformed, "this snapshot was not requested")
	}
	if err := few(ctx, tx, row, p.Cause); err != nil {
		return nil, err
	}
	if p.Label != "" && round != "" {
		used, err := tx.Q.LabelUsed(ctx, row.ID, p.Label)
		if err != nil {
			return nil, fmt.Errorf("labels of %s: %w", row.ID, err)
		}
		if used {
			return nil, refused(agentapi.VolumeLabelUsed, "all ranks have committed %q since they began: use another label",
				p.Label)
		}
	}
	if err := rs.commits.usable(ctx, tx, x.DomainID, x.ID, x.BasePacks, p); err != nil {
		return nil, err
	}
	if h.PreparedID == p.snapshot && h.Prepared != nil && h.Round == round {
		return nil, nil
	}
	b, err := json.Marshal(p.CommitVolume)
	if err != nil {
		return nil, err
	}
	err = tx.Q.PrepareVolumeShard(ctx, dbq.PrepareVolumeShardParams{
		PreparedID: p.snapshot, Round: round, Prepared: b, SessionID: x.ID,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", p.snapshot, err)
	}
	return nil, nil
}

// withdraw takes a prepared shard back, unless it is committed.
func (rs *rounds) withdraw(ctx context.Context, session id.DataSession, p parsed) (*agentapi.PreparedVolume, error) {
	out := &agentapi.PreparedVolume{}
	err := rs.sessions.inDomain(ctx, session, func(ctx context.Context, tx *db.Tx, x dbq.DataSession,
		_ dbq.DataDomain) error {
		h, err := shardOfSession(ctx, tx.Q, x.ID)
		if err != nil {
			return err
		}
		if d := done(h, p.snapshot); d != nil {
			out = d
			return nil
		}
		return tx.Q.ClearVolumeShard(ctx, "", x.ID, p.snapshot)
	})
	return out, err
}
