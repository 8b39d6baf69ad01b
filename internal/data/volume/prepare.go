package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// A volume with mode ranks has a copy on the host of every rank. A rank prepares a snapshot of its copy, a shard, whose
// packs are stored then. The shards of a round are committed together: one transaction makes one snapshot, which is the
// volume's head with what each of the ranks has changed since its own last commit (manifest.Merger). A shard without a
// round is committed alone, in the same way.

// prepare notes a rank's shard and commits its round if it is the last one. Repeated, it returns what was committed.
func (v *Volumes) prepare(ctx context.Context, session id.DataSession,
	q agentapi.PrepareVolume) (*agentapi.PreparedVolume, error) {
	p, err := parseCommit(q.CommitVolume)
	if err != nil {
		return nil, err
	}
	round, err := roundOf(q)
	if err != nil {
		return nil, err
	}
	s, err := v.session(ctx, v.d.Q, session)
	if err != nil {
		return nil, err
	}
	if s.DataSession.Mode != agentapi.MountRanks {
		return nil, refused(agentapi.VolumeMalformed, "the volume is not mounted with mode ranks")
	}
	if q.Withdraw {
		return v.withdraw(ctx, session, p)
	}
	if err := v.verify(ctx, s.DataSession, p.firsts, p.lasts); err != nil {
		return nil, err
	}
	var out *agentapi.PreparedVolume
	err = v.inDomain(ctx, session, func(ctx context.Context, tx *db.Tx, x dbq.DataSession, _ dbq.DataDomain) error {
		out, err = v.note(ctx, tx, x, p, round)
		return err
	})
	if out != nil || err != nil {
		return out, err
	}
	return v.complete(ctx, s.DataSession, p.snapshot, round)
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

// shard returns the rank's copy that a session writes.
func (v *Volumes) shard(ctx context.Context, q *dbq.Queries, session id.DataSession) (dbq.VolumeShard, error) {
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
func (v *Volumes) note(ctx context.Context, tx *db.Tx, x dbq.DataSession, p parsed,
	round string) (*agentapi.PreparedVolume, error) {
	row, err := tx.Q.LockVolume(ctx, x.VolumeID)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", x.VolumeID, err)
	}
	h, err := v.shard(ctx, tx.Q, x.ID)
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
		return nil, refused(agentapi.VolumeMalformed, "nobody has requested this snapshot")
	}
	if err := v.few(ctx, tx, row, p.Cause); err != nil {
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
	if err := v.usable(ctx, tx, x.DomainID, p, x.ID); err != nil {
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
func (v *Volumes) withdraw(ctx context.Context, session id.DataSession, p parsed) (*agentapi.PreparedVolume, error) {
	out := &agentapi.PreparedVolume{}
	err := v.inDomain(ctx, session, func(ctx context.Context, tx *db.Tx, x dbq.DataSession, _ dbq.DataDomain) error {
		h, err := v.shard(ctx, tx.Q, x.ID)
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
	parsed
}

// readRound reads the round that a session's shard is in.
func (v *Volumes) readRound(ctx context.Context, q *dbq.Queries, x dbq.DataSession, name string) (*round, error) {
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
	p = prepared{rank: int(row.Rank), session: row.SessionID}
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

// complete commits the round of a session's shard if all that it needs are prepared. Whoever prepares, or asks again,
// completes it: a server that is killed in between is replaced by the next request.
func (v *Volumes) complete(ctx context.Context, x dbq.DataSession, snap id.Snapshot,
	name string) (*agentapi.PreparedVolume, error) {
	for range completeTries {
		r, err := v.readRound(ctx, v.d.Q, x, name)
		if err != nil {
			return nil, err
		}
		if len(r.missing) > 0 {
			return v.waiting(ctx, x, snap, r.missing)
		}
		// The merge reads the store, with nothing locked. One server does it once at a time for a volume.
		if _, busy := v.merging.LoadOrStore(x.VolumeID, true); busy {
			return v.waiting(ctx, x, snap, nil)
		}
		err = v.completeOnce(ctx, x, r)
		v.merging.Delete(x.VolumeID)
		if err != nil {
			return nil, err
		}
		out, err := v.waiting(ctx, x, snap, nil)
		if err != nil || out.Seq > 0 {
			return out, err
		}
	}
	return &agentapi.PreparedVolume{}, nil
}

// waiting answers that a shard is not committed yet, unless it is.
func (v *Volumes) waiting(ctx context.Context, x dbq.DataSession, snap id.Snapshot,
	missing []int) (*agentapi.PreparedVolume, error) {
	h, err := v.shard(ctx, v.d.Q, x.ID)
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

// completeOnce merges a round and commits it, if it still is what was merged.
func (v *Volumes) completeOnce(ctx context.Context, x dbq.DataSession, r *round) error {
	m, err := v.merge(ctx, x, r)
	var conflict *manifest.ConflictError
	switch {
	case errors.As(err, &conflict):
		return v.refuseRound(ctx, x, r, agentapi.CleanText(conflict.Error())+": no rank's files are committed")
	case errors.Is(err, manifest.ErrTooBig), errors.Is(err, manifest.ErrCorrupt), errors.Is(err, chunk.ErrCorrupt),
		errors.Is(err, store.ErrNotFound):
		return v.refuseRound(ctx, x, r, "the ranks' files cannot be put together: "+err.Error())
	case err != nil:
		return err
	}
	if v.merged != nil { // in tests
		v.merged()
	}
	return v.inDomain(ctx, x.ID, func(ctx context.Context, tx *db.Tx, x dbq.DataSession, _ dbq.DataDomain) error {
		return v.commitRound(ctx, tx, x, r, m)
	})
}

// refuseRound notes why the shards of a round cannot be committed. Each of its ranks gets that as the answer.
func (v *Volumes) refuseRound(ctx context.Context, x dbq.DataSession, r *round, why string) error {
	return v.inDomain(ctx, x.ID, func(ctx context.Context, tx *db.Tx, _ dbq.DataSession, _ dbq.DataDomain) error {
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
func (v *Volumes) commitRound(ctx context.Context, tx *db.Tx, x dbq.DataSession, was *round, m merged) error {
	row, err := tx.Q.LockVolume(ctx, x.VolumeID)
	if err != nil {
		return fmt.Errorf("lock %s: %w", x.VolumeID, err)
	}
	r, err := v.readRound(ctx, tx.Q, x, was.name)
	if err != nil {
		return err
	}
	if !was.sameAs(r) {
		return nil
	}
	ready, err := v.allUsable(ctx, tx, x, r)
	if err != nil || !ready {
		return err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	p, err := v.snapshotOfRound(ctx, tx, x, r, m)
	if err != nil {
		return err
	}
	added, err := v.promote(ctx, tx, x.DomainID, p, now)
	if err != nil {
		return err
	}
	whole := r.name != "" && p.Label != "" || p.Cause == agentapi.SnapshotByEnd && r.last
	seq, err := v.insertSnapshot(ctx, tx, row, x, p, added, whole, now)
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

// allUsable reports whether the packs of all shards of a round can be committed. A shard of which some are gone is
// taken back: its rank prepares it again, and is told which.
func (v *Volumes) allUsable(ctx context.Context, tx *db.Tx, x dbq.DataSession, r *round) (bool, error) {
	ready := true
	for _, s := range r.shards {
		err := v.usable(ctx, tx, x.DomainID, s.parsed, s.session)
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
func (v *Volumes) snapshotOfRound(ctx context.Context, tx *db.Tx, x dbq.DataSession, r *round, m merged) (parsed,
	error) {
	first := r.shards[0]
	c := first.CommitVolume
	c.BaseSeq, c.Root, c.Consistency = r.head.Seq, wirePlace(m.Root), agentapi.SnapshotExact
	c.LogicalBytes, c.Files, c.LeftOut = m.Found.LogicalBytes, m.Found.Files, m.Found.LeftOut
	c.Snapshot = first.snapshot.String()
	if r.name != "" && c.Cause == agentapi.SnapshotByJob {
		c.Snapshot = id.New[id.Snapshot]().String() // each rank has an id of its own for its shard
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
	if r.name != "" && c.Cause != agentapi.SnapshotByJob || r.name == "" {
		// The copies were cut at different moments, or are of different commits.
		if len(r.shards) > 1 || !r.last {
			c.Consistency = agentapi.SnapshotPerFile
		}
	}
	c.Packs = packs.Encode()
	return parseCommit(c)
}

// few refuses snapshots that a host takes by itself when too many are kept.
func (v *Volumes) few(ctx context.Context, tx *db.Tx, row dbq.Volume, cause string) error {
	if cause != agentapi.SnapshotByInterval {
		return nil
	}
	n, err := tx.Q.CountSnapshots(ctx, row.ID)
	if err != nil {
		return fmt.Errorf("count snapshots of %s: %w", row.ID, err)
	}
	if n >= maxSnapshots {
		return refused(agentapi.VolumeTooSoon, "the volume keeps %d snapshots: delete some", n)
	}
	return nil
}

// insertSnapshot makes a snapshot the head of a locked volume.
func (v *Volumes) insertSnapshot(ctx context.Context, tx *db.Tx, row dbq.Volume, x dbq.DataSession, p parsed,
	added int64, whole bool, now time.Time) (seq int64, err error) {
	seq = row.HeadSeq + 1
	cut := time.UnixMilli(p.CutAtMS)
	if p.CutAtMS <= 0 || cut.After(now) {
		cut = now
	}
	err = tx.Q.InsertSnapshot(ctx, dbq.InsertSnapshotParams{
		VolumeID: row.ID, Seq: seq, ID: p.snapshot, RootID: p.root.ID[:], RootPack: p.root.Pack,
		RootOffset: int64(p.root.Offset), RootLength: int64(p.root.Length), RootSize: int64(p.root.Size), Packs: p.Packs,
		LogicalBytes: p.LogicalBytes, AddedBytes: added, Files: p.Files, LeftOut: p.LeftOut, CutAt: cut, CommittedAt: now,
		Cause: p.Cause, Consistency: p.Consistency, Label: p.Label, LeaseID: x.LeaseID, Epoch: x.Epoch, Whole: whole,
	})
	if err == nil {
		err = tx.Q.MoveVolumeHead(ctx, seq, p.snapshot, row.ID)
	}
	if err != nil {
		return 0, fmt.Errorf("commit %s: %w", p.snapshot, err)
	}
	v.changed(tx, row.OrgID)
	return seq, nil
}
