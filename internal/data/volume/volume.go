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
	"log/slog"
	"time"

	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
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

// Volumes are the use cases of volumes, by what they are about. Safe for concurrent use.
type Volumes struct {
	Catalog   *Catalog
	Snapshots *Snapshots
	Files     *Files
	Transfers *Transfers
	Hosts     *Hosts

	Meters  *Meters
	Arrears *Arrears

	Scrubber  *Scrubber
	Inventory *Inventory
	Collector *Collector
}

// New returns the use cases on d. A nil store: this platform has none, and offers no volumes.
func New(d *db.DB, s store.Store, cfg Config) *Volumes {
	cfg.setDefaults()
	limiter := &limiter{d: d, currency: cfg.Currency, limits: quotasOf(cfg)}
	verifier := &verifier{d: d, store: s, looking: slots.Slots{PerOrg: bigCommitsPerOrg, All: bigCommits}}
	sessions := &sessions{d: d}
	packs := &packs{d: d, store: s, sessions: sessions, limiter: limiter}
	commits := &commits{d: d, bus: cfg.Bus, sessions: sessions, verifier: verifier}
	rounds := &rounds{
		d: d, store: s, box: cfg.Box, sessions: sessions, packs: packs, commits: commits, verifier: verifier,
		limiter: limiter,
		merges:  slots.Slots{PerOrg: mergesPerOrg, All: mergesAtOnce, Wait: mergeTime, Full: "others are under way"},
	}
	meters := &Meters{d: d, log: cfg.Log, currency: cfg.Currency, price: cfg.PricePerGBHour}
	catalog := &Catalog{d: d, store: s, box: cfg.Box, log: cfg.Log, meters: meters}
	return &Volumes{
		Catalog:   catalog,
		Snapshots: &Snapshots{d: d, bus: cfg.Bus, catalog: catalog},
		Files:     newFiles(d, s, cfg.Box, catalog, limiter),
		Transfers: &Transfers{
			d: d, store: s, box: cfg.Box, catalog: catalog, sessions: sessions, packs: packs, commits: commits,
		},
		Hosts: &Hosts{
			d: d, store: s, log: cfg.Log, sessions: sessions, packs: packs, commits: commits, rounds: rounds,
		},
		Meters:    meters,
		Arrears:   &Arrears{d: d, bus: cfg.Bus, currency: cfg.Currency, meters: meters},
		Scrubber:  &Scrubber{d: d, store: s, log: cfg.Log, verifier: verifier},
		Inventory: &Inventory{d: d, store: s, log: cfg.Log, keepUnknown: cfg.KeepUnknown},
		Collector: &Collector{
			d: d, store: s, grace: cfg.Grace, keepUnknown: cfg.KeepUnknown, verifier: verifier,
		},
	}
}

// setDefaults sets what is not configured.
func (c *Config) setDefaults() {
	if c.Grace == 0 {
		c.Grace = time.Hour
	}
	if c.KeepUnknown == 0 {
		c.KeepUnknown = DefaultKeepUnknown
	}
	if c.MaxStored == 0 {
		c.MaxStored = DefaultMaxStored
	}
	if c.FreeStored == 0 {
		c.FreeStored = DefaultFreeStored
	}
	if c.FreeRead == 0 {
		c.FreeRead = DefaultFreeRead
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

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
