package volume

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// minInterval is the least time between two snapshots of a volume by interval.
const minInterval = 10 * time.Second

// commits makes snapshots of what writers have stored.
type commits struct {
	d        *db.DB
	bus      *bus.Bus // nil: pages are not notified
	sessions *sessions
	verifier *verifier
}

// commit makes a snapshot durable: in one transaction the fence, the packs, the head, the level of what is billed, and
// the snapshot. Repeated, it returns what was committed.
func (cs *commits) commit(ctx context.Context, session id.DataSession,
	c agentapi.CommitVolume) (*agentapi.CommittedVolume, error) {
	p, err := parseCommit(c)
	if err != nil {
		return nil, err
	}
	if done, err := cs.committed(ctx, cs.d.Q, session, p.snapshot); done != nil || err != nil {
		return done, err
	}
	s, err := cs.sessions.read(ctx, cs.d.Q, session)
	if err != nil {
		return nil, err
	}
	if s.DataSession.Mode == agentapi.MountRanks {
		return nil, refused(agentapi.VolumeMalformed, "a rank's copy is prepared, not committed")
	}
	if err := cs.verifier.verify(ctx, s.DataSession, p.firsts, p.lasts); err != nil {
		return nil, err
	}
	var out *agentapi.CommittedVolume
	err = cs.sessions.inDomain(ctx, session, func(ctx context.Context, tx *db.Tx, x dbq.DataSession,
		d dbq.DataDomain) error {
		if out, err = cs.committed(ctx, tx.Q, session, p.snapshot); out != nil || err != nil {
			return err
		}
		out, err = cs.commitLocked(ctx, tx, x, p)
		return err
	})
	return out, err
}

// committed returns the answer to a commit that was made before.
func (cs *commits) committed(ctx context.Context, q *dbq.Queries, session id.DataSession,
	snap id.Snapshot) (*agentapi.CommittedVolume, error) {
	rows, err := q.CommittedSnapshot(ctx, snap)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", snap, err)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	s, err := cs.sessions.read(ctx, q, session)
	if err != nil {
		return nil, err
	}
	if s.DataSession.VolumeID != rows[0].VolumeID {
		return nil, refused(agentapi.VolumeMalformed, "the snapshot's id is used by another volume")
	}
	return &agentapi.CommittedVolume{Seq: rows[0].Seq, CommittedAtMS: rows[0].CommittedAt.UnixMilli()}, nil
}

// parsed is a commit whose form is right.
type parsed struct {
	agentapi.CommitVolume
	snapshot      id.Snapshot
	root          manifest.Ref
	packs         *manifest.PackSet
	firsts, lasts []int64 // runs of packs
}

// causes are those of a commit.
var causes = []string{agentapi.SnapshotByInterval, agentapi.SnapshotByNotice, agentapi.SnapshotByEnd,
	agentapi.SnapshotByRequest, agentapi.SnapshotByJob, agentapi.SnapshotByUpload}

func parseCommit(c agentapi.CommitVolume) (p parsed, err error) {
	p.CommitVolume = c
	bad := func(what string) (parsed, error) { return p, refused(agentapi.VolumeMalformed, "%s", what) }
	if p.snapshot, err = id.Parse[id.Snapshot](c.Snapshot); err != nil {
		return bad("the snapshot's id is malformed")
	}
	if p.root, err = placeRef(c.Root); err != nil || len(c.Packs) > agentapi.MaxSnapshotSet {
		return bad("the root or the set of packs are malformed")
	}
	if p.packs, err = manifest.DecodePackSet(c.Packs); err != nil || !p.packs.Has(c.Root.Pack) {
		return bad("the root or the set of packs are malformed")
	}
	if len(c.Label) > agentapi.MaxLabel || agentapi.CleanText(c.Label) != c.Label {
		return bad("the label is too long or not printable")
	}
	if !slices.Contains(causes, c.Cause) || c.Consistency != agentapi.SnapshotExact &&
		c.Consistency != agentapi.SnapshotPerFile || c.LogicalBytes < 0 || c.Files < 0 || c.LeftOut < 0 || c.BaseSeq < 0 {
		return bad("cause, consistency or counts are malformed")
	}
	for _, r := range p.packs.Runs() {
		p.firsts, p.lasts = append(p.firsts, r.First), append(p.lasts, r.Last)
	}
	return p, nil
}

// placeRef is the inverse of wirePlace.
func placeRef(at agentapi.PackPlace) (manifest.Ref, error) {
	b, err := hex.DecodeString(at.ID)
	if err != nil || len(b) != len(chunk.ID{}) {
		return manifest.Ref{}, fmt.Errorf("%.80q is no id of a chunk", at.ID)
	}
	return manifest.Ref{ID: chunk.ID(b), Pack: at.Pack, Offset: at.Offset, Length: at.Length, Size: at.Size}, nil
}

// commitLocked commits with the data domain locked.
func (cs *commits) commitLocked(ctx context.Context, tx *db.Tx, x dbq.DataSession, p parsed) (*agentapi.CommittedVolume,
	error) {
	row, err := tx.Q.LockVolume(ctx, x.VolumeID)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", x.VolumeID, err)
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return nil, err
	}
	if p.BaseSeq != row.HeadSeq {
		return nil, refused(agentapi.VolumeBaseMoved, "the volume's last snapshot is %d, not %d", row.HeadSeq, p.BaseSeq)
	}
	upload := x.LeaseID.IsZero()
	if upload && p.LogicalBytes > row.SizeLimit {
		return nil, refused(agentapi.VolumeQuota, "the files take %d bytes, and the volume has room for %d GB",
			p.LogicalBytes, row.SizeLimit/GB)
	}
	if err := paced(ctx, tx, row, p.Cause, now); err != nil {
		return nil, err
	}
	if err := cs.usable(ctx, tx, x.DomainID, x.ID, x.BasePacks, p); err != nil {
		return nil, err
	}
	added, err := promote(ctx, tx, x.DomainID, p, now)
	if err != nil {
		return nil, err
	}
	seq, err := cs.insertSnapshot(ctx, tx, row, x, p, added, true, now)
	if err != nil {
		return nil, err
	}
	err = tx.Q.MoveSessionBase(ctx, dbq.MoveSessionBaseParams{
		Seq: seq, Packs: p.Packs, Seconds: lifeOf(x).Seconds(), ID: x.ID,
	})
	if err == nil && upload {
		err = endTransfer(ctx, tx, x, true)
	}
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w", p.snapshot, err)
	}
	return &agentapi.CommittedVolume{Seq: seq, CommittedAtMS: now.UnixMilli()}, nil
}

// paced refuses snapshots that come too often, or when too many are kept.
func paced(ctx context.Context, tx *db.Tx, row dbq.Volume, cause string, now time.Time) error {
	if cause != agentapi.SnapshotByInterval {
		return nil
	}
	head, err := tx.Q.HeadSnapshot(ctx, row.ID)
	if err != nil {
		return fmt.Errorf("head of %s: %w", row.ID, err)
	}
	if len(head) > 0 && now.Sub(head[0].CommittedAt) < minInterval {
		return refused(agentapi.VolumeTooSoon, "snapshots by interval are at least %s apart", minInterval)
	}
	return few(ctx, tx, row, cause)
}

// changed makes pages show a volume of an organisation again.
func changed(b *bus.Bus, tx *db.Tx, org id.Org) {
	if b != nil {
		tx.AfterCommit(func() { b.Changed(bus.TopicOrg(org)) })
	}
}

// usable refuses a commit that names a pack which is not in the store, or about to be deleted from it, or which is
// neither of its session nor of the session's base: a host could else read what other volumes and earlier snapshots
// have.
func (cs *commits) usable(ctx context.Context, tx *db.Tx, domain id.DataDomain, session id.DataSession, base []byte,
	p parsed) error {
	has, err := manifest.DecodePackSet(base)
	if err != nil {
		return fmt.Errorf("packs of %s: %w", session, err)
	}
	firsts, lasts, own := apart(p.packs, has)
	n, err := tx.Q.UsablePacks(ctx, dbq.UsablePacksParams{
		Firsts: firsts, Lasts: lasts, Own: own, DomainID: domain, SessionID: session,
	})
	if err != nil {
		return fmt.Errorf("packs of %s: %w", p.snapshot, err)
	}
	if n == p.packs.Len() || cs.sessions.without == withoutPackCheck {
		return nil
	}
	missing, err := tx.Q.MissingPacks(ctx, dbq.MissingPacksParams{
		Firsts: firsts, Lasts: lasts, Own: own, DomainID: domain, SessionID: session,
	})
	if err != nil {
		return fmt.Errorf("missing packs of %s: %w", p.snapshot, err)
	}
	e := refused(agentapi.VolumeMissing, "%d packs are not in the store", p.packs.Len()-n)
	e.Packs = missing
	return e
}

// apart returns the runs of a set, cut so that each is either in base or outside of it (own).
func apart(set, base *manifest.PackSet) (firsts, lasts []int64, own []bool) {
	add := func(first, last int64, mine bool) {
		if first <= last {
			firsts, lasts, own = append(firsts, first), append(lasts, last), append(own, mine)
		}
	}
	rest := base.Runs()
	for _, r := range set.Runs() {
		for len(rest) > 0 && rest[0].Last < r.First {
			rest = rest[1:]
		}
		at := r.First
		for _, b := range rest {
			if b.First > r.Last {
				break
			}
			add(at, b.First-1, true)
			add(max(at, b.First), min(r.Last, b.Last), false)
			at = b.Last + 1
		}
		add(at, r.Last, true)
	}
	return firsts, lasts, own
}

// promote makes a commit's packs live and returns how many bytes the level rose by.
func promote(ctx context.Context, tx *db.Tx, domain id.DataDomain, p parsed,
	now time.Time) (int64, error) {
	up, err := tx.Q.PromotePacks(ctx, dbq.PromotePacksParams{
		Firsts: p.firsts, Lasts: p.lasts, DomainID: domain, At: now,
	})
	if err != nil {
		return 0, fmt.Errorf("packs of %s: %w", p.snapshot, err)
	}
	if up.Bytes == 0 {
		return 0, nil
	}
	return up.Bytes, setLevel(ctx, tx, domain, moved{up.Bytes, up.Granted, up.Regained}, now)
}

// few returns VolumeTooSoon if the cause is an interval and the volume already has maxSnapshots snapshots.
func few(ctx context.Context, tx *db.Tx, row dbq.Volume, cause string) error {
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
func (cs *commits) insertSnapshot(ctx context.Context, tx *db.Tx, row dbq.Volume, x dbq.DataSession, p parsed,
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
	changed(cs.bus, tx, row.OrgID)
	return seq, nil
}
