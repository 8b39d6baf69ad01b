package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// A round is the shards that are committed together.
type round struct {
	name    string
	head    dbq.VolumeSnapshot // zero: the volume is empty
	start   int64              // number of the snapshot that the ranks began with
	added   *manifest.PackSet  // packs of merges since then
	shards  []prepared
	missing []int
	last    bool // all other ranks have committed their ends
}

// prepared is one shard of a round.
type prepared struct {
	rank    int
	session id.DataSession
	base    manifest.Ref // zero: the rank began with an empty volume
	from    []byte       // the packs that its session's base has
	parsed
}

// loadRound reads the round that a session's shard is in.
func loadRound(ctx context.Context, q *dbq.Queries, x dbq.DataSession, name string) (*round, error) {
	rows, err := q.VolumeShards(ctx, x.VolumeID)
	if err != nil {
		return nil, fmt.Errorf("shards of %s: %w", x.VolumeID, err)
	}
	r := &round{name: name, last: true}
	for _, row := range rows {
		mine := row.SessionID == x.ID
		if mine || r.added == nil {
			r.start = row.StartSeq
			if r.added, err = manifest.DecodePackSet(row.MergePacks); err != nil {
				return nil, fmt.Errorf("packs of merges of %s: %w", x.VolumeID, err)
			}
		}
		if !mine {
			r.last = r.last && row.Current && row.Ended != nil && *row.Ended
		}
		if name == "" && !mine {
			continue
		}
		if !row.Current || row.Prepared == nil || row.Round != name {
			r.missing = append(r.missing, int(row.Rank))
			continue
		}
		p, err := shardOf(row)
		if err != nil {
			return nil, fmt.Errorf("shard %d of %s: %w", row.Rank, x.VolumeID, err)
		}
		r.shards = append(r.shards, p)
	}
	head, err := q.HeadSnapshot(ctx, x.VolumeID)
	if err != nil {
		return nil, fmt.Errorf("head of %s: %w", x.VolumeID, err)
	}
	if len(head) > 0 {
		r.head = head[0]
	}
	return r, nil
}

func shardOf(row dbq.VolumeShardsRow) (p prepared, err error) {
	var c agentapi.CommitVolume
	if err := json.Unmarshal(row.Prepared, &c); err != nil {
		return p, err
	}
	p = prepared{rank: int(row.Rank), session: row.SessionID, from: row.BasePacks}
	if p.parsed, err = parseCommit(c); err != nil {
		return p, err
	}
	if len(row.Base) > 0 {
		var at agentapi.PackPlace
		if err := json.Unmarshal(row.Base, &at); err != nil {
			return p, err
		}
		p.base, err = placeRef(at)
	}
	return p, err
}

// sameAs reports whether two reads of a round show the same.
func (r *round) sameAs(o *round) bool {
	if r.head.ID != o.head.ID || len(r.shards) != len(o.shards) || len(o.missing) > 0 {
		return false
	}
	for i, s := range r.shards {
		if s.session != o.shards[i].session || s.snapshot != o.shards[i].snapshot || s.root != o.shards[i].root {
			return false
		}
	}
	return true
}

// completeTries is how often a round is merged again because the volume's head has moved meanwhile.
const completeTries = 3

// complete commits the round of a session's shard if all shards of the round are prepared. Every request that prepares
// a shard, or repeats one, calls it, so another server continues after one was killed.
func (rs *rounds) complete(ctx context.Context, x dbq.DataSession, snap id.Snapshot,
	name string) (*agentapi.PreparedVolume, error) {
	for range completeTries {
		r, err := loadRound(ctx, rs.d.Q, x, name)
		if err != nil {
			return nil, err
		}
		if len(r.missing) > 0 {
			return rs.waiting(ctx, x, snap, r.missing)
		}
		merging, err := rs.completeOnce(ctx, x, r)
		if err != nil {
			return nil, err
		}
		out, err := rs.waiting(ctx, x, snap, nil)
		if !merging {
			return out, err
		}
		if err != nil || out.Seq > 0 {
			return out, err
		}
	}
	return &agentapi.PreparedVolume{}, nil
}

// waiting answers that a shard is not committed yet, unless it is.
func (rs *rounds) waiting(ctx context.Context, x dbq.DataSession, snap id.Snapshot,
	missing []int) (*agentapi.PreparedVolume, error) {
	h, err := shardOfSession(ctx, rs.d.Q, x.ID)
	if err != nil {
		return nil, err
	}
	if out := done(h, snap); out != nil {
		return out, nil
	}
	if h.PreparedID == snap && h.Problem != "" {
		return nil, refused(agentapi.VolumeConflict, "%s", h.Problem)
	}
	return &agentapi.PreparedVolume{Missing: missing}, nil
}

// completeOnce merges a round, with nothing locked, and commits it if no shard has changed meanwhile. It does nothing
// and returns false while another request on this server merges the same volume.
func (rs *rounds) completeOnce(ctx context.Context, x dbq.DataSession, r *round) (merging bool, err error) {
	if _, busy := rs.merging.LoadOrStore(x.VolumeID, true); busy {
		return false, nil
	}
	defer rs.merging.Delete(x.VolumeID)
	return true, rs.mergeAndCommit(ctx, x, r)
}

func (rs *rounds) mergeAndCommit(ctx context.Context, x dbq.DataSession, r *round) error {
	m, err := rs.merge(ctx, x, r)
	var conflict *manifest.ConflictError
	switch {
	case errors.As(err, &conflict):
		return rs.refuseRound(ctx, x, r, clip(conflict.Error())+": no rank's files are committed")
	case errors.Is(err, manifest.ErrTooBig), errors.Is(err, manifest.ErrCorrupt), errors.Is(err, chunk.ErrCorrupt),
		errors.Is(err, store.ErrNotFound):
		return rs.refuseRound(ctx, x, r, "the ranks' files cannot be put together: "+clip(err.Error()))
	case err != nil:
		return err
	}
	if rs.merged != nil { // in tests
		rs.merged()
	}
	return rs.sessions.inDomain(ctx, x.ID, func(ctx context.Context, tx *db.Tx, x dbq.DataSession,
		_ dbq.DataDomain) error {
		return rs.commitRound(ctx, tx, x, r, m)
	})
}

// refuseRound notes why the shards of a round cannot be committed. Each of its ranks gets that as the answer.
func (rs *rounds) refuseRound(ctx context.Context, x dbq.DataSession, r *round, why string) error {
	return rs.sessions.inDomain(ctx, x.ID, func(ctx context.Context, tx *db.Tx, _ dbq.DataSession,
		_ dbq.DataDomain) error {
		for _, s := range r.shards {
			if err := tx.Q.ClearVolumeShard(ctx, why, s.session, s.snapshot); err != nil {
				return fmt.Errorf("refuse %s: %w", s.snapshot, err)
			}
		}
		return nil
	})
}

// commitRound commits a round with its data domain locked. It does nothing if the round has changed: then it is merged
// again.
func (rs *rounds) commitRound(ctx context.Context, tx *db.Tx, x dbq.DataSession, was *round, m merged) error {
	row, err := tx.Q.LockVolume(ctx, x.VolumeID)
	if err != nil {
		return fmt.Errorf("lock %s: %w", x.VolumeID, err)
	}
	r, err := loadRound(ctx, tx.Q, x, was.name)
	if err != nil {
		return err
	}
	if !was.sameAs(r) {
		return nil
	}
	ready, err := rs.allUsable(ctx, tx, x, r)
	if err != nil || !ready {
		return err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	p, err := snapshotOfRound(ctx, tx, x, r, m)
	if err != nil {
		return err
	}
	added, err := promote(ctx, tx, x.DomainID, p, now)
	if err != nil {
		return err
	}
	whole := r.name != "" && p.Label != "" || p.Cause == agentapi.SnapshotByEnd && r.last
	seq, err := rs.commits.insertSnapshot(ctx, tx, row, x, p, added, whole, now)
	if err != nil {
		return err
	}
	for _, s := range r.shards {
		err := tx.Q.CommitVolumeShard(ctx, dbq.CommitVolumeShardParams{
			Ended: s.Cause == agentapi.SnapshotByEnd, DoneAs: p.snapshot, DoneSeq: seq, At: &now, SessionID: s.session,
		})
		if err == nil {
			err = tx.Q.MoveSessionBase(ctx, dbq.MoveSessionBaseParams{
				Seq: seq, Packs: s.Packs, Seconds: sessionLife.Seconds(), ID: s.session,
			})
		}
		if err != nil {
			return fmt.Errorf("commit shard %d of %s: %w", s.rank, p.snapshot, err)
		}
	}
	r.added.AddAll(m.packs)
	return tx.Q.AddMergePacks(ctx, r.added.Encode(), row.ID)
}

// allUsable reports whether the packs of all shards of a round can be committed. It clears each shard with missing
// packs: the shard's rank receives the list of them and prepares the shard again.
func (rs *rounds) allUsable(ctx context.Context, tx *db.Tx, x dbq.DataSession, r *round) (bool, error) {
	ready := true
	for _, s := range r.shards {
		err := rs.commits.usable(ctx, tx, x.DomainID, s.session, s.from, s.parsed)
		var e *agentapi.VolumeError
		if errors.As(err, &e) {
			ready = false
			err = tx.Q.ClearVolumeShard(ctx, "", s.session, s.snapshot)
		}
		if err != nil {
			return false, err
		}
	}
	return ready, nil
}

// snapshotOfRound describes the snapshot that a round becomes. What it needs are the packs of every rank's copy, as
// last committed or as prepared now, and those of merges: each file of the merged tree is in one of the copies.
func snapshotOfRound(ctx context.Context, tx *db.Tx, x dbq.DataSession, r *round, m merged) (parsed,
	error) {
	first := r.shards[0]
	c := first.CommitVolume
	c.BaseSeq, c.Root, c.Consistency = r.head.Seq, wirePlace(m.Root), agentapi.SnapshotExact
	c.LogicalBytes, c.Files, c.LeftOut = m.Found.LogicalBytes, m.Found.Files, m.Found.LeftOut
	c.Snapshot = first.snapshot.String()
	// Only the ranks of a job cut their copies at a moment on which they agree.
	together := r.name != "" && c.Cause == agentapi.SnapshotByJob
	if together {
		c.Snapshot = id.New[id.Snapshot]().String() // the ranks sent different ids
	}
	packs := manifest.NewPackSet()
	packs.AddAll(r.added)
	packs.AddAll(m.packs)
	rows, err := tx.Q.ShardPacks(ctx, x.VolumeID)
	if err != nil {
		return parsed{}, fmt.Errorf("packs of the ranks of %s: %w", x.VolumeID, err)
	}
	for _, b := range rows {
		s, err := manifest.DecodePackSet(b)
		if err != nil {
			return parsed{}, fmt.Errorf("packs of the ranks of %s: %w", x.VolumeID, err)
		}
		packs.AddAll(s)
	}
	for _, s := range r.shards {
		packs.AddAll(s.packs)
		if s.Consistency != agentapi.SnapshotExact {
			c.Consistency = agentapi.SnapshotPerFile
		}
		if s.CutAtMS < c.CutAtMS {
			c.CutAtMS = s.CutAtMS
		}
	}
	if !together && (len(r.shards) > 1 || !r.last) {
		c.Consistency = agentapi.SnapshotPerFile
	}
	c.Packs = packs.Encode()
	return parseCommit(c)
}
