package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/seal"
)

// A transfer is a session of a person's program, without a lease: an upload writes the volume as a cluster would, a
// download reads one snapshot. The program seals and opens chunks itself, so it gets the key of the data domain.

// Directions of a transfer.
const (
	Upload   = "upload"
	Download = "download"
)

// transferLife is how long a transfer lives after its last request. As long, an upload that was killed keeps others
// from writing the volume. Its packs are kept for longer, see DoomAbandoned: it can be resumed for a day.
const transferLife = 5 * time.Minute

// lifeOf is how long a session lives after a request in it.
func lifeOf(x dbq.DataSession) time.Duration {
	if x.LeaseID.IsZero() {
		return transferLife
	}
	return sessionLife
}

// Transfer is an open transfer.
type Transfer struct {
	ID        id.DataSession
	Direction string
	Key       []byte // of the data domain; secret
	HeadSeq   int64
	SizeLimit int64
	Base      *agentapi.Snapshot // what an upload changes, or a download reads; nil: the volume is empty
}

// NewTransfer is a transfer to open, or to open again.
type NewTransfer struct {
	ID        id.DataSession // chosen by the caller
	Direction string
	Seq       int64 // of the snapshot to download; 0: the last one
}

// Transfers are uploads to volumes and downloads from them, by people's programs.
type Transfers struct {
	d        *db.DB
	store    store.Store // nil: this platform has no volumes
	box      *seal.Box
	catalog  *Catalog
	sessions *sessions
	packs    *packs
	commits  *commits
}

// Open opens a transfer, or returns the one of the id: so a program that was killed goes on. Faults: NotFound,
// Invalid, Unavailable, Conflict while a cluster or another upload writes the volume, or has since the transfer was
// opened.
func (t *Transfers) Open(ctx context.Context, who account.Principal, vol id.Volume,
	n NewTransfer) (out Transfer, err error) {
	if t.store == nil {
		return out, errNoStore
	}
	if !slices.Contains([]string{Upload, Download}, n.Direction) || n.Direction == Upload && n.Seq != 0 || n.Seq < 0 {
		return out, fault.InvalidField("direction", "want upload, or download and perhaps the number of a snapshot")
	}
	err = locked(ctx, t.d, who.Org, vol, func(ctx context.Context, tx *db.Tx, row dbq.Volume) error {
		have, err := tx.Q.DataSession(ctx, agentapi.VolumeFlushMaxS, n.ID)
		if err != nil {
			return fmt.Errorf("read %s: %w", n.ID, err)
		}
		var x dbq.DataSession
		if len(have) > 0 {
			x, err = t.resume(ctx, tx, row, have[0], n)
		} else if x, err = t.begin(ctx, tx, row, n); err == nil {
			err = audit.Record(ctx, tx, opened(who, vol, n, x.BaseSeq))
		}
		if err != nil {
			return err
		}
		d, err := tx.Q.LockDataDomain(ctx, row.DomainID)
		if err != nil {
			return fmt.Errorf("lock %s: %w", row.DomainID, err)
		}
		out = Transfer{ID: x.ID, Direction: n.Direction, HeadSeq: row.HeadSeq, SizeLimit: row.SizeLimit}
		if out.Key, err = OpenKey(t.box, d.ID, d.KeySealed); err != nil {
			return err
		}
		o, err := openedVolume(ctx, tx.Q, x)
		if err != nil {
			return err
		}
		out.Base = o.Base
		return nil
	})
	return out, err
}

// opened is the entry of an opened transfer in the organisation's trail.
func opened(who account.Principal, vol id.Volume, n NewTransfer, seq int64) audit.Event {
	details := map[string]any{"transfer": n.ID.String(), "seq": seq}
	if n.Direction == Upload {
		return who.Event("volume.upload", vol.String(), details)
	}
	return who.Event("volume.download", vol.String(), details)
}

var errNoTransfer = fault.New(fault.NotFound, "transfer not found")

// errOver is the fault of an upload whose volume was written by another one since, or that was closed.
var errOver = func() *fault.Fault {
	f := fault.New(fault.Conflict, "the transfer is over: it was closed, it is an upload and older than three days, or "+
		"the volume was written, rented or set back since. What it sent has changed nothing; begin it again.")
	f.Extra = map[string]any{"reason": "transfer_over"}
	return f
}()

func (t *Transfers) resume(ctx context.Context, tx *db.Tx, row dbq.Volume, s dbq.DataSessionRow,
	n NewTransfer) (dbq.DataSession, error) {
	x := s.DataSession
	if x.VolumeID != row.ID || !x.LeaseID.IsZero() {
		return x, errNoTransfer
	}
	if x.Mode != modeOf(n.Direction) {
		return x, fault.InvalidField("direction", "is another one than that of the transfer")
	}
	s, err := t.sessions.read(ctx, tx.Q, x.ID)
	if err != nil || s.DataSession.BaseSeq != row.HeadSeq && x.Mode == agentapi.MountRW {
		return x, errOver
	}
	if err := tx.Q.RenewDataSession(ctx, transferLife.Seconds(), x.ID); err != nil {
		return x, fmt.Errorf("renew %s: %w", x.ID, err)
	}
	return x, nil
}

func modeOf(direction string) string {
	if direction == Upload {
		return agentapi.MountRW
	}
	return agentapi.MountRO
}

// begin makes the session of a transfer. An upload becomes the volume's writer.
func (t *Transfers) begin(ctx context.Context, tx *db.Tx, row dbq.Volume, n NewTransfer) (x dbq.DataSession,
	err error) {
	if row.HiddenAt != nil {
		return x, errHidden(row.Name)
	}
	if n.Direction == Upload {
		if err := free(ctx, tx, row.ID); err != nil {
			return x, err
		}
	}
	seq, packs := n.Seq, []byte{}
	if seq == 0 {
		seq = row.HeadSeq
	}
	if seq != 0 {
		base, err := tx.Q.SnapshotAt(ctx, row.ID, seq)
		if err != nil {
			return x, fmt.Errorf("read snapshot %d of %s: %w", seq, row.ID, err)
		}
		if len(base) == 0 {
			return x, errNoSnapshot
		}
		packs = base[0].Packs
	} else if n.Direction == Download {
		return x, errNoSnapshot
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return x, err
	}
	x, err = tx.Q.InsertDataSession(ctx, dbq.InsertDataSessionParams{
		ID: n.ID, VolumeID: row.ID, DomainID: row.DomainID, Mode: modeOf(n.Direction), BaseSeq: seq, BasePacks: packs,
		ExpiresAt: now.Add(transferLife),
	})
	if err != nil {
		return x, fmt.Errorf("open a transfer of %s: %w", row.ID, err)
	}
	if n.Direction == Upload {
		if err := tx.Q.SetVolumeWriter(ctx, row.ID, id.Cluster{}, x.ID); err != nil {
			return x, fmt.Errorf("become the writer of %s: %w", row.ID, err)
		}
	}
	return x, nil
}

// read checks that a transfer is of the organisation's volume, and is not over.
func (t *Transfers) read(ctx context.Context, org id.Org, vol id.Volume,
	session id.DataSession) (s dbq.DataSessionRow, err error) {
	if _, err := t.catalog.Get(ctx, org, vol); err != nil {
		return s, err
	}
	s, err = t.sessions.read(ctx, t.d.Q, session)
	if errors.Is(err, errNoVolume) || err == nil && (s.DataSession.VolumeID != vol || !s.DataSession.LeaseID.IsZero()) {
		return s, errNoTransfer
	}
	return s, forPeople(err)
}

// forPeople turns a refusal of a host's request into a fault.
func forPeople(err error) error {
	var e *agentapi.VolumeError
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case agentapi.VolumeFenced, agentapi.VolumeBaseMoved, agentapi.VolumeInUse:
		return errOver
	case agentapi.VolumeQuota:
		return fault.New(fault.QuotaExceeded, "%s", e.Message)
	case agentapi.VolumeNotFound:
		return fault.New(fault.NotFound, "%s", e.Message)
	case agentapi.VolumeAway, agentapi.VolumeTooSoon:
		f := fault.New(fault.Unavailable, "%s", e.Message)
		f.RetryAfter = 2 * time.Second
		return f
	}
	return fault.New(fault.Invalid, "%s", e.Message)
}

// Reserve reserves numbers for the packs of an upload. Faults: NotFound, Invalid, Conflict.
func (t *Transfers) Reserve(ctx context.Context, org id.Org, vol id.Volume, session id.DataSession,
	count int) (agentapi.ReservedPacks, error) {
	if _, err := t.read(ctx, org, vol, session); err != nil {
		return agentapi.ReservedPacks{}, err
	}
	out, err := t.packs.reserve(ctx, session, count)
	if err != nil {
		return agentapi.ReservedPacks{}, forPeople(err)
	}
	return *out, nil
}

// StorePack returns the request that stores a pack of an upload. Faults: NotFound, Invalid, Conflict, QuotaExceeded.
func (t *Transfers) StorePack(ctx context.Context, org id.Org, vol id.Volume, session id.DataSession,
	p agentapi.PackGrant) (agentapi.PackURL, error) {
	if _, err := t.read(ctx, org, vol, session); err != nil {
		return agentapi.PackURL{}, err
	}
	out, err := t.packs.grant(ctx, session, agentapi.GrantPacks{
		Snapshot: id.New[id.Snapshot]().String(), Packs: []agentapi.PackGrant{p},
	})
	if err != nil {
		return agentapi.PackURL{}, forPeople(err)
	}
	return out.Packs[0], nil
}

// ReadPack returns the request that reads a pack of a transfer's snapshot. Faults: NotFound, Conflict, QuotaExceeded.
func (t *Transfers) ReadPack(ctx context.Context, org id.Org, vol id.Volume, session id.DataSession,
	n int64) (agentapi.PackURL, error) {
	s, err := t.read(ctx, org, vol, session)
	if err != nil {
		return agentapi.PackURL{}, err
	}
	out, err := t.packs.read(ctx, s, []int64{n})
	if err != nil {
		return agentapi.PackURL{}, forPeople(err)
	}
	return out.Packs[0], nil
}

// Committed is the outcome of a commit: a snapshot, or packs whose chunks must be sent again.
type Committed struct {
	Seq         int64
	CommittedAt time.Time
	Missing     []int64
}

// Commit makes what an upload has sent the volume's next snapshot, and ends it. Repeated, it returns what was
// committed. Faults: NotFound, Invalid, Conflict, QuotaExceeded, Unavailable.
func (t *Transfers) Commit(ctx context.Context, org id.Org, vol id.Volume, session id.DataSession,
	c agentapi.CommitVolume) (Committed, error) {
	if _, err := t.catalog.Get(ctx, org, vol); err != nil {
		return Committed{}, err
	}
	c.Cause, c.Consistency = agentapi.SnapshotByUpload, agentapi.SnapshotPerFile
	if done, found, err := t.uploaded(ctx, vol, c.Snapshot); found || err != nil { // the commit has ended the transfer
		return done, err
	}
	s, err := t.read(ctx, org, vol, session)
	if err != nil {
		return Committed{}, err
	}
	c.BaseSeq = s.DataSession.BaseSeq
	out, err := t.commits.commit(ctx, session, c)
	var e *agentapi.VolumeError
	if errors.As(err, &e) && e.Code == agentapi.VolumeFenced {
		// Sent twice at the same time: the first one has ended the transfer.
		if done, found, err2 := t.uploaded(ctx, vol, c.Snapshot); found || err2 != nil {
			return done, err2
		}
	}
	if errors.As(err, &e) && e.Code == agentapi.VolumeMissing {
		return Committed{Missing: e.Packs}, nil
	}
	if err != nil {
		return Committed{}, forPeople(err)
	}
	return Committed{Seq: out.Seq, CommittedAt: time.UnixMilli(out.CommittedAtMS)}, nil
}

// uploaded returns what a volume's snapshot came to, if it is committed.
func (t *Transfers) uploaded(ctx context.Context, vol id.Volume, snapshot string) (out Committed, found bool,
	err error) {
	snap, err := id.Parse[id.Snapshot](snapshot)
	if err != nil {
		return out, false, fault.InvalidField("body.snapshot", "is no id of a snapshot")
	}
	rows, err := t.d.Q.CommittedSnapshot(ctx, snap)
	if err != nil {
		return out, false, fmt.Errorf("read %s: %w", snap, err)
	}
	if len(rows) == 0 || rows[0].VolumeID != vol {
		return out, false, nil
	}
	return Committed{Seq: rows[0].Seq, CommittedAt: rows[0].CommittedAt}, true, nil
}

// Report notes how far a transfer is, and keeps it alive. Faults: NotFound, Conflict.
func (t *Transfers) Report(ctx context.Context, org id.Org, vol id.Volume, session id.DataSession,
	r agentapi.VolumeReport) error {
	s, err := t.read(ctx, org, vol, session)
	if err != nil {
		return err
	}
	return forPeople(t.sessions.report(ctx, s.DataSession, r))
}

// Close ends a transfer. What an upload has sent and not committed is removed. Fault: NotFound.
func (t *Transfers) Close(ctx context.Context, org id.Org, vol id.Volume, session id.DataSession) error {
	return locked(ctx, t.d, org, vol, func(ctx context.Context, tx *db.Tx, _ dbq.Volume) error {
		have, err := tx.Q.DataSession(ctx, agentapi.VolumeFlushMaxS, session)
		if err != nil {
			return fmt.Errorf("read %s: %w", session, err)
		}
		if len(have) == 0 || have[0].DataSession.VolumeID != vol || !have[0].DataSession.LeaseID.IsZero() {
			return errNoTransfer
		}
		return endTransfer(ctx, tx, have[0].DataSession, have[0].Writes)
	})
}

// endTransfer closes a transfer of a locked volume, which others may write from here on.
func endTransfer(ctx context.Context, tx *db.Tx, x dbq.DataSession, writes bool) error {
	err := tx.Q.CloseDataSession(ctx, 0, x.ID)
	if err == nil && writes {
		err = tx.Q.DeleteVolumeWriter(ctx, x.VolumeID)
	}
	if err != nil {
		return fmt.Errorf("end %s: %w", x.ID, err)
	}
	return nil
}
