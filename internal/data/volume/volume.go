// Package volume keeps volumes: trees of files that have a name of their own and follow their renter to any host.
//
// A volume's snapshots lie in a store as packs of sealed chunks. This package knows which packs there are, which
// snapshot needs which, who may write, and what is paid for it. It never sees a host's files, and a host never gets the
// store's credentials: it gets signed requests for single packs.
//
// What always holds:
//   - A snapshot is durable once its row is committed: all packs it names are in the store then, and are not collected
//     while it exists. What is not in a committed snapshot may be lost.
//   - One cluster or upload writes a volume at a time. Commits of any other are refused (fenced), by (lease, epoch) as
//     the lease's row has them, never by a host's word.
//   - A commit moves the head from the base that its writer knows by exactly one.
//   - Where ranks write, a commit adds to the head what each of its ranks has changed since its own last commit. One
//     of all ranks has a shard of every required rank, each of its present run. No rank's change replaces another's.
//   - A pack's number is never used twice in its data domain.
//   - Packs are collected in two phases, an hour apart. A commit either finds a pack and keeps it, or must send it
//     again; it never refers to one that is about to be deleted.
//   - Packs are checked in rounds that come to each of them, whatever the store answers for the others. What it has
//     lost or damaged is named; what it does not answer for is neither.
//   - An object is deleted if its row says so, or if no row has known its number for days and none can again.
//   - What is billed are the bytes of packs that the store has shown and has not lost or damaged, by the microsecond,
//     as data_level records them. A deletion ends that in its own transaction. A pack that is kept again is billed for
//     the time between. Levels and prices never change, so that each posting can be calculated again.
//   - A volume that is not paid for is hidden before it is erased: never while a cluster has it, while a payment is
//     disputed, or while its organisation pays by invoice and none is overdue, and not before what the wallet has is
//     charged.
//   - A commit names packs of its session and of the session's base only, so a host reads nothing that its lease was
//     not given and has not stored itself.
//   - Nothing is granted without a payment, credit or terms that cover it, except a quota for each person.
//   - A data domain without volumes has no key: what the store may keep of it cannot be read.
//
// Locks: the data domain, then the volume, then packs; before them clusters and hosts, after them the ledger's
// accounts.
package volume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/slots"
)

// GB is a gigabyte as sizes and prices mean it.
const GB = 1_000_000_000

// Limits of an organisation's volumes.
const (
	MaxPerOrg    = 200
	MinSizeGB    = 1
	MaxSizeGB    = 100_000
	MaxKeep      = 100
	DefaultKeep  = 3
	maxSnapshots = 1000
)

// Config is the settings of volumes.
type Config struct {
	Currency string
	Box      *seal.Box
	// PricePerGBHour is the price of a stored GB for an hour, in nano-units. 0: storing is free.
	PricePerGBHour money.Nano
	// MaxStored limits what an organisation may store in bytes; 0 is DefaultMaxStored. FreeStored and FreeRead limit what
	// one that has paid nothing may store, and read in a day, together with its circle (see package account); 0 is
	// DefaultFreeStored and DefaultFreeRead.
	MaxStored            int64
	FreeStored, FreeRead int64
	// Grace is how long a pack that nothing needs is kept; 0 is an hour. Tests shorten it.
	Grace time.Duration
	// KeepUnknown is how long an object in the store that no row knows is kept; 0 is DefaultKeepUnknown. It must be longer
	// than a signed request holds.
	KeepUnknown time.Duration
	Bus         *bus.Bus // nil: hosts are not woken
	Log         *slog.Logger
}

// What organisations may store and read unless the platform is configured otherwise.
const (
	DefaultMaxStored  = 10_000 * GB
	DefaultFreeStored = 10 * GB
	DefaultFreeRead   = 10 * GB
)

// Volumes are the use cases of volumes. Safe for concurrent use.
type Volumes struct {
	d     *db.DB
	store store.Store // nil: this platform has none, and offers no volumes
	cfg   Config

	looking   slots.Slots   // commits of many packs that look for them in the store
	reads     slots.Slots   // requests that list directories
	downloads slots.Slots   // files that are being sent
	opening   chan struct{} // chunks for them that are being opened
	files     fileReads     // bytes that were read for both and are not counted yet

	merges  slots.Slots // merges under way
	merging sync.Map    // by id.Volume: a merge of its ranks' files is under way
	merged  func()      // called between a merge and its commit; in tests

	without string // a check that tests leave out, to see that it is needed; "" outside of tests
}

// Checks that tests leave out.
const (
	withoutPackCheck = "pack check"
	withoutFence     = "fence"
)

// New returns the use cases on d.
func New(d *db.DB, s store.Store, cfg Config) *Volumes {
	if cfg.Grace == 0 {
		cfg.Grace = time.Hour
	}
	if cfg.KeepUnknown == 0 {
		cfg.KeepUnknown = DefaultKeepUnknown
	}
	if cfg.MaxStored == 0 {
		cfg.MaxStored = DefaultMaxStored
	}
	if cfg.FreeStored == 0 {
		cfg.FreeStored = DefaultFreeStored
	}
	if cfg.FreeRead == 0 {
		cfg.FreeRead = DefaultFreeRead
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	v := &Volumes{
		d: d, store: s, cfg: cfg, looking: slots.Slots{PerOrg: bigCommitsPerOrg, All: bigCommits},
		merges: slots.Slots{PerOrg: mergesPerOrg, All: mergesAtOnce, Wait: mergeTime, Full: "others are under way"},
	}
	v.limitReads()
	return v
}

// Offered reports whether this platform has a store.
func (v *Volumes) Offered() bool { return v.store != nil }

var errNoStore = fault.New(fault.Unavailable, "this platform has no store for volumes")

// Volume is a volume as its renter sees it.
type Volume struct {
	ID        id.Volume
	Name      string
	SizeLimit int64 // bytes
	Keep      int   // snapshots that are kept whatever their age
	CreatedAt time.Time
	Snapshots int64
	HeadSeq   int64
	// StoredBytes is what its data domain stores: compressed, shared chunks once, all snapshots. It shares them with
	// Sharing − 1 other volumes.
	StoredBytes int64
	Sharing     int64
	PerHour     money.Micro // what StoredBytes cost at the present price

	// Owed is what is not paid for what its data domain stored, since OwedSince (nil: nothing is owed). If it is not paid,
	// the volume is hidden at HidesAt, and erased at ErasesAt. HiddenAt: it is hidden since then, until it is paid.
	Owed                         money.Nano
	OwedSince, HidesAt, ErasesAt *time.Time
	HiddenAt                     *time.Time

	// DurableTo is the moment up to which everything written is in the last snapshot; nil: there is none.
	DurableTo   *time.Time
	Label       string
	Consistency string
	Bytes       int64 // of the files of the last snapshot
	Files       int64

	Cluster     id.Cluster // that writes it, or wrote it last; zero: none
	ClusterName string
	ClusterEnd  *time.Time // when that cluster ended; nil: it has not, or there is none
	Requested   bool       // a snapshot is requested and not committed yet
	Pending     int64      // bytes that are not durable yet, as the host estimates
	ETA         time.Duration
	Problem     string
	ReportedAt  *time.Time
}

// Snapshot is a committed snapshot.
type Snapshot struct {
	ID          id.Snapshot
	Seq         int64
	CutAt       time.Time
	CommittedAt time.Time
	Cause       string
	Consistency string
	Label       string
	Bytes       int64 // of its files
	Added       int64 // bytes that it added to what is stored
	Files       int64
	LeftOut     int64
	// Whole: it shows one moment of all that write the volume. Others have ranks as each of them was last saved, and are
	// not restored by themselves where one with a label exists.
	Whole bool
	// Lease is whose host took it; zero: an upload, or a copy of another snapshot.
	Lease id.Lease
	// Lost is how many of its packs the store has lost or damaged: files that need them cannot be read.
	Lost int64
}

var nameShape = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// NewVolume is what to create.
type NewVolume struct {
	Name   string
	SizeGB int64
	Keep   int // 0 is DefaultKeep
}

func (n *NewVolume) check() error {
	var bad fault.Fields
	if !nameShape.MatchString(n.Name) {
		bad.Add("name", "Use up to 63 lower-case letters, digits and dashes, such as training-data.")
	}
	if n.SizeGB < MinSizeGB || n.SizeGB > MaxSizeGB {
		bad.Add("size_gb", "want %d to %d", MinSizeGB, MaxSizeGB)
	}
	if n.Keep == 0 {
		n.Keep = DefaultKeep
	}
	if n.Keep < 1 || n.Keep > MaxKeep {
		bad.Add("keep", "want 1 to %d", MaxKeep)
	}
	return bad.Err()
}

// errNone is the fault for a volume that does not exist or is another organisation's.
var errNone = fault.New(fault.NotFound, "volume not found")

func errUsed(name string) error {
	return fault.New(fault.Conflict, "there is a volume %q already: choose another name", name)
}

// Create creates an empty volume with a data domain of its own. Faults: Invalid, Conflict if the name is used,
// QuotaExceeded, Unavailable.
func (v *Volumes) Create(ctx context.Context, who account.Principal, n NewVolume, once idem.Request) (Volume,
	idem.Outcome, error) {
	if v.store == nil {
		return Volume{}, idem.Outcome{}, errNoStore
	}
	return idem.Once(ctx, v.d, once, func(ctx context.Context, tx *db.Tx) (Volume, error) {
		if err := n.check(); err != nil {
			return Volume{}, err
		}
		domain := id.New[id.DataDomain]()
		key := make([]byte, chunk.KeySize)
		_, _ = rand.Read(key) // never fails
		err := tx.Q.InsertDataDomain(ctx, domain, who.Org, v.cfg.Box.Seal(key, belongs(domain)))
		if err != nil {
			return Volume{}, fmt.Errorf("create a data domain of %s: %w", who.Org, err)
		}
		vol, err := v.insert(ctx, tx, who, domain, n)
		if err != nil {
			return Volume{}, err
		}
		return vol, audit.Record(ctx, tx, who.Event("volume.create", vol.ID.String(),
			map[string]any{"name": n.Name, "size_gb": n.SizeGB}))
	})
}

// belongs binds a domain's sealed key to it.
func belongs(d id.DataDomain) string { return "data domain:" + d.UUID().String() }

func (v *Volumes) insert(ctx context.Context, tx *db.Tx, who account.Principal, domain id.DataDomain,
	n NewVolume) (Volume, error) {
	if err := tx.Q.LockVolumesOfOrg(ctx, who.Org.String()); err != nil {
		return Volume{}, fmt.Errorf("lock volumes of %s: %w", who.Org, err)
	}
	have, err := tx.Q.CountVolumes(ctx, who.Org)
	if err != nil {
		return Volume{}, fmt.Errorf("count volumes of %s: %w", who.Org, err)
	}
	if have >= MaxPerOrg {
		return Volume{}, fault.New(fault.QuotaExceeded, "your organisation has %d volumes; delete one first", have)
	}
	vol := Volume{ID: id.New[id.Volume](), Name: n.Name, SizeLimit: n.SizeGB * GB, Keep: n.Keep, Sharing: 1}
	at, err := tx.Q.InsertVolume(ctx, dbq.InsertVolumeParams{
		ID: vol.ID, OrgID: who.Org, DomainID: domain, Name: n.Name, SizeLimit: vol.SizeLimit, KeepLast: int32(n.Keep),
		CreatedBy: who.User,
	})
	if err != nil {
		return Volume{}, fmt.Errorf("create a volume of %s: %w", who.Org, err)
	}
	if len(at) == 0 {
		return Volume{}, errUsed(n.Name)
	}
	vol.CreatedAt = at[0]
	return vol, nil
}

// List returns the organisation's volumes by name.
func (v *Volumes) List(ctx context.Context, org id.Org) ([]Volume, error) {
	rows, err := v.d.Q.Volumes(ctx, org, pgtype.UUID{})
	if err != nil {
		return nil, fmt.Errorf("volumes of %s: %w", org, err)
	}
	out := make([]Volume, len(rows))
	for i, r := range rows {
		out[i] = v.of(r)
	}
	return out, nil
}

// Get returns a volume of the organisation. Fault: NotFound.
func (v *Volumes) Get(ctx context.Context, org id.Org, vol id.Volume) (Volume, error) {
	rows, err := v.d.Q.Volumes(ctx, org, id.UUIDs(vol)[0])
	if err != nil {
		return Volume{}, fmt.Errorf("read %s: %w", vol, err)
	}
	if len(rows) == 0 {
		return Volume{}, errNone
	}
	return v.of(rows[0]), nil
}

func (v *Volumes) of(r dbq.VolumesRow) Volume {
	out := Volume{
		ID: r.Volume.ID, Name: r.Volume.Name, SizeLimit: r.Volume.SizeLimit, Keep: int(r.Volume.KeepLast),
		CreatedAt: r.Volume.CreatedAt, Snapshots: r.Snapshots, HeadSeq: r.Volume.HeadSeq, StoredBytes: r.DomainBytes,
		Sharing: r.Sharing, PerHour: v.PerHour(r.BilledBytes), DurableTo: r.HeadCutAt, Label: r.HeadLabel,
		Consistency: r.HeadConsistency, Bytes: r.HeadBytes, Files: r.HeadFiles, Cluster: r.WriterClusterID,
		ClusterName: r.WriterName, ClusterEnd: r.WriterEndedAt, Requested: !r.Volume.WantedID.IsZero(),
		Pending: r.PendingBytes, ETA: time.Duration(r.FlushEtaS) * time.Second,
		Problem: r.Problem, ReportedAt: r.ReportedAt, Owed: money.Nano(r.Owed), OwedSince: r.UnpaidSince,
		HiddenAt: r.Volume.HiddenAt,
	}
	out.HidesAt, out.ErasesAt = fate(r.UnpaidSince, r.KeptUntil, r.Volume.HiddenAt)
	return out
}

// Snapshots returns a volume's snapshots, newest first. Fault: NotFound.
func (v *Volumes) Snapshots(ctx context.Context, org id.Org, vol id.Volume) ([]Snapshot, error) {
	if _, err := v.Get(ctx, org, vol); err != nil {
		return nil, err
	}
	rows, err := v.d.Q.VolumeSnapshots(ctx, vol)
	if err != nil {
		return nil, fmt.Errorf("snapshots of %s: %w", vol, err)
	}
	bad, err := v.d.Q.FlawedOfVolume(ctx, vol)
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

// Change is what to change of a volume; nil stays.
type Change struct {
	Name   *string
	SizeGB *int64
	Keep   *int
}

// Set changes a volume. A new size holds from the next start on. Faults: NotFound, Invalid, Conflict.
func (v *Volumes) Set(ctx context.Context, who account.Principal, vol id.Volume, c Change) (Volume, error) {
	err := v.locked(ctx, who.Org, vol, func(ctx context.Context, tx *db.Tx, row dbq.Volume) error {
		n := NewVolume{Name: row.Name, SizeGB: row.SizeLimit / GB, Keep: int(row.KeepLast)}
		if c.Name != nil {
			n.Name = *c.Name
		}
		if c.SizeGB != nil {
			n.SizeGB = *c.SizeGB
		}
		if c.Keep != nil {
			n.Keep = *c.Keep
		}
		if err := n.check(); err != nil {
			return err
		}
		err := tx.Q.SetVolume(ctx, dbq.SetVolumeParams{
			ID: vol, Name: n.Name, SizeLimit: n.SizeGB * GB, KeepLast: int32(n.Keep),
		})
		if db.IsUnique(err, "volume_name") {
			return errUsed(n.Name)
		}
		if err != nil {
			return fmt.Errorf("change %s: %w", vol, err)
		}
		return audit.Record(ctx, tx, who.Event("volume.change", vol.String(),
			map[string]any{"name": n.Name, "size_gb": n.SizeGB, "keep": n.Keep}))
	})
	if err != nil {
		return Volume{}, err
	}
	return v.Get(ctx, who.Org, vol)
}

// locked runs f with a volume of the organisation, its data domain and itself locked. Fault: NotFound.
func (v *Volumes) locked(ctx context.Context, org id.Org, vol id.Volume,
	f func(context.Context, *db.Tx, dbq.Volume) error) error {
	return v.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		row, err := tx.Q.LockVolume(ctx, vol)
		if db.NoRows(err) || err == nil && (row.OrgID != org || row.DeletedAt != nil) {
			return errNone
		}
		if err != nil {
			return fmt.Errorf("lock %s: %w", vol, err)
		}
		return f(ctx, tx, row)
	})
}

// OpenKey decrypts the key of a data domain. It is secret.
func OpenKey(box *seal.Box, domain id.DataDomain, sealed []byte) ([]byte, error) {
	if len(sealed) == 0 {
		return nil, errors.New("the data domain is erased")
	}
	return box.Open(sealed, belongs(domain))
}

// keys opens a domain's key.
func (v *Volumes) keys(domain id.DataDomain, sealed []byte) (*chunk.Keys, error) {
	key, err := OpenKey(v.cfg.Box, domain, sealed)
	if err != nil {
		return nil, err
	}
	return chunk.NewKeys(key)
}

// Reseal seals the keys of data domains with the platform's present secret while it changes, and returns how many it
// sealed.
func (v *Volumes) Reseal(ctx context.Context) (sealed int, err error) {
	if !v.cfg.Box.Rotating() {
		return 0, nil
	}
	return seal.ResealAll(ctx, v.cfg.Box, id.First[id.DataDomain](), v.d.Q.SealedDomains,
		func(r dbq.SealedDomainsRow) (id.DataDomain, []byte, string) { return r.ID, r.KeySealed, belongs(r.ID) },
		v.d.Q.ResealDomain)
}
