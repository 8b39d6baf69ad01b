// Package agent is the daemon on a host: it makes the host run what the control plane wants, and reports what is there.
//
// Invariants:
//   - Desired state is a level, not a sequence of commands: every lease's next step is computed (plan) from what is
//     wanted, what the lease folder records and what is there, so a crash between any two steps costs nothing but time.
//   - Missing information never stops anything: without a server, workloads run until run_until; without Docker, the
//     agent concludes nothing.
//   - A desired state older than one accepted before is never followed, and an ended (lease, epoch) never runs again.
//   - At most one epoch of a lease runs: the older is torn down before the newer begins.
//   - A renter's environment and credentials are in memory and in the create request, never on the disk.
package agent

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/agent/machine/hostmem"
	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/self/update"
	"github.com/musterhq/muster/agent/storage/bucket"
	"github.com/musterhq/muster/agent/storage/lazy"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/storage/sharedfs"
	"github.com/musterhq/muster/agent/storage/snapd"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/cores"
	"github.com/musterhq/muster/agent/workload/image"
	"github.com/musterhq/muster/agent/workload/journal"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// Link is the connection to the control plane. A call that cannot be made now fails at once; a call that is made too
// often fails with an *agentapi.TooMany.
type Link interface {
	Sync(ctx context.Context, s agentapi.Sync) (agentapi.SyncReply, error)
	Inventory(ctx context.Context, inv agentapi.Inventory) error
	Telemetry(t agentapi.Telemetry) error
	// Volume sends a request about a volume; a refusal is an *agentapi.VolumeError.
	Volume(ctx context.Context, q agentapi.VolumeRequest) (agentapi.VolumeReply, error)
}

// GPUs is the part of the host's GPU monitor that the agent needs; *gpu.Monitor implements it.
type GPUs interface {
	Sample(ctx context.Context, uuids ...string) (gpu.Batch, error)
	EnergyMJ(ctx context.Context, uuids ...string) (map[string]int64, error)
	NoteBefore(ctx context.Context, uuids ...string) error
	WaitClean(ctx context.Context, uuids ...string) error
	InUse(ctx context.Context, uuids ...string) map[string]string
	LeasedBy(leased func() map[string]bool)
	DeviceNodes(uuids ...string) []string
	OwnerUse() map[string]int64
	Checked(res gpucheck.Result, uuids ...string)
	Unchecked() []string
	WatchLinks(ctx context.Context, uuids ...string)
	Requalify(ctx context.Context, uuid string) error
	ResetDue() []string
	Health() map[string]gpu.Health
	Pending() []agentapi.HealthEvent
	Ack(seq uint64) error
	Changed() <-chan struct{}
}

// Config configures an Agent. All fields are required unless their comment gives a default or a zero value's meaning.
type Config struct {
	Host      id.Host
	Key       ed25519.PrivateKey // signs usage
	Version   string
	StateDir  string
	BootID    string
	BootMS    func() int64 // CLOCK_BOOTTIME
	Now       func() time.Time
	Engine    *container.Engine
	Images    *image.Puller
	GPUs      GPUs
	Link      Link
	Inventory func(ctx context.Context) agentapi.Inventory
	Simulated bool         // the GPUs are simulated: no lease's work runs on them
	Resolvers []netip.Addr // name servers for workloads
	Caps      firewall.Caps
	Prefetch  bool // fetch popular images while nothing is leased
	// bytes of images received over the host's line since this process began; nil = not counted
	Received func() int64
	Cores    cores.Host // where processors and GPUs are; the zero Host: leases run on any
	Log      *slog.Logger

	Advertise      []string          // addresses at which peers may reach this host; empty = its own
	Underlay       []string          // network ports preferred for traffic between hosts, best first
	OverlayCommand []string          // command that starts an overlay process; empty = this executable
	SnapdCommand   []string          // command that starts the process for volumes; empty = this executable
	MountProgram   string            // muster-mount; empty = the host mounts neither buckets nor lazy volumes
	Shared         []*sharedfs.Share // shared file systems that the operator declares
	// SharedEvery is the time between looks at shared folders; default 30 s.
	SharedEvery time.Duration
	AnyStore    bool // buckets may be in stores that are not on the internet, and without TLS
	// how long a running overlay process that is silent may take to answer before it is replaced; default
	// overlay.DefaultPatience
	OverlayPatience time.Duration
	// Leaving returns what the cloud that the machine is rented from announces about it, for people; nil or "": nothing.
	Leaving func() string
	// RDMA returns the ports of RDMA devices that the operator lends and that are up now; nil: none.
	RDMA func() []agentapi.HCA
	// Partitions puts these ports into clusters' partitions; nil: the host does not.
	Partitions Partitions
	Userspace  bool          // new overlays never move to the kernel's WireGuard
	Tick       time.Duration // time between ticks in the journal; default 5 s
	// FirewallEvery is the time between checks of the firewall's table while nothing starts; default 15 s.
	FirewallEvery time.Duration
	// Memory reads the host's memory; the zero Reader reads this machine's, unless the GPUs are simulated.
	Memory hostmem.Reader
	// CleanIn is how long GPUs may take to free an ended lease's memory before they are suspect; default 30 s.
	CleanIn time.Duration
	Awake   func(bool)      // called often with whether a lease is on the host; may be nil
	Scratch *scratch.Store  // where nodes' scratches are made; nil = the host offers none
	Updates *update.Updater // of the agent itself; nil = updates are not reported
}

// Agent runs the leases of a host.
type Agent struct {
	cfg     Config
	log     *slog.Logger
	disk    disk
	journal *journal.Journal
	volumes *snapd.Client
	buckets *bucket.Mounts
	lazies  *lazy.Mounts // volumes that are read on demand
	shares  shares
	selves  selves // what workloads request of their own nodes

	syncNow    chan struct{}            // a report is due
	inventory  chan struct{}            // the inventory must be sent
	rescan     chan struct{}            // Docker's list must be read again
	fetch      chan struct{}            // there may be popular images to fetch
	resets     chan struct{}            // the operator asks for the reset of a GPU
	shareNow   map[string]chan struct{} // by shared file system: its folders are to be looked at
	woken      chan struct{}            // a desired state came with a wake
	following  sync.Mutex               // serialises changes of what the host should run
	admitting  sync.Mutex               // serialises changes of the firewall and of the state it shall have
	firewall   firewall.Keeper
	mountProbe mountProbe
	checking   freeCheck

	mu      sync.Mutex
	leases  map[string]*lease
	seen    seen
	pushed  *agentapi.Desired // came with a wake and is not applied yet
	known   bool              // this process has accepted a desired state
	scanned bool              // Docker's list was read, and no read has failed since
	seq     uint64
	older   bool              // the server speaks the protocol before this agent's
	images  map[string]string // public images on the host, name to digest, as last reported
	popular []string          // from the server's last answer
	bound   popularBound
	pulls   pulls
	memory  memoryNotes

	requalifies requalifies
	watched     time.Time // end of live telemetry
	scratchUsed map[agentapi.LeaseRef]int64
	// readingScratch: a goroutine reads scratchUsed again, which takes long if a disk hangs.
	readingScratch bool
	born           time.Time
	ctx            context.Context
	workers        sync.WaitGroup
}

// New reads the state that the host has stored. It starts nothing.
func New(cfg Config) (*Agent, error) {
	if cfg.Tick == 0 {
		cfg.Tick = 5 * time.Second
	}
	if cfg.FirewallEvery == 0 {
		cfg.FirewallEvery = 15 * time.Second
	}
	if cfg.CleanIn == 0 {
		cfg.CleanIn = 30 * time.Second
	}
	a := &Agent{
		cfg:       cfg,
		log:       cfg.Log,
		disk:      disk{cfg.StateDir},
		leases:    map[string]*lease{},
		syncNow:   make(chan struct{}, 1),
		inventory: make(chan struct{}, 1),
		rescan:    make(chan struct{}, 1),
		fetch:     make(chan struct{}, 1),
		resets:    make(chan struct{}, 1),
		shareNow:  map[string]chan struct{}{},
		woken:     make(chan struct{}, 1),
		born:      cfg.Now(),
	}
	for _, s := range cfg.Shared {
		a.shareNow[s.Name] = make(chan struct{}, 1)
	}
	a.volumes = a.newVolumes(filepath.Join(cfg.StateDir, "snapd"))
	a.buckets, a.lazies = a.newBuckets(), a.newLazies()
	if err := a.disk.prepare(); err != nil {
		return nil, fmt.Errorf("prepare the state folder: %w", err)
	}
	var err error
	if a.seen, err = a.disk.loadSeen(); err != nil {
		return nil, fmt.Errorf("load the revisions seen: %w", err)
	}
	if a.pulls, err = a.openPulls(); err != nil {
		return nil, fmt.Errorf("open the pulls: %w", err)
	}
	if err := readJSON(a.disk.memoryNotes(), &a.memory); err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("what was noted of the host's memory cannot be read", "err", err)
	}
	a.journal, err = journal.Open(filepath.Join(cfg.StateDir, "journal"),
		journal.Config{Host: cfg.Host.String(), Key: cfg.Key, BootID: cfg.BootID, Now: cfg.Now, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	refs, err := a.disk.refs()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("list image references: %w", err), a.journal.Close())
	}
	for _, ref := range refs {
		rec, err := a.disk.load(ref)
		if err != nil {
			// The run's containers are still found by their labels; only what its folder recorded is lost.
			a.log.Error("lease folder is damaged", "lease", ref, "err", err)
			rec = record{Spec: agentapi.LeaseSpec{LeaseRef: ref}}
		}
		a.addRun(ref, rec)
	}
	return a, nil
}

// Run works until ctx ends. The host's workloads continue without the agent; the next agent process adopts them.
func (a *Agent) Run(ctx context.Context) error {
	a.mu.Lock()
	a.ctx = ctx
	for _, l := range a.leases {
		a.startWorker(l)
	}
	a.mu.Unlock()
	a.cfg.GPUs.LeasedBy(a.busyGPUs)
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){
		a.syncLoop, a.wakeLoop, a.inventoryLoop, a.meterLoop, a.telemetryLoop, a.cleanLoop,
		a.scanLoop, a.firewallLoop, a.prefetchLoop, a.sweepScratch, a.sweepBuckets, a.sweepLazies, a.sweepMounts,
		a.sweepShared, a.checkLoop, a.memoryLoop,
		a.resetLoop, a.volumes.Run, a.sharedLoop,
		func(ctx context.Context) { a.cfg.Engine.Watch(ctx, a.containerChanged) }} {
		loops.Go(func() { loop(ctx) })
	}
	loops.Wait()
	a.workers.Wait()
	a.buckets.Close()
	a.lazies.Close()
	a.countPulls() // the next process reports it
	return a.journal.Close()
}

// Connected notifies the agent that the link is up, the first time or again.
func (a *Agent) Connected() {
	poke(a.inventory)
	poke(a.syncNow)
}

// InventoryChanged notifies the agent that its inventory has changed, so that it is sent at once.
func (a *Agent) InventoryChanged() { poke(a.inventory) }

// Wake notifies the agent that the server has a newer state, which may be in the message, or that a person watches its
// telemetry. It does not wait.
func (a *Agent) Wake(w agentapi.Wake) {
	a.mu.Lock()
	if w.Watch {
		a.watched = a.cfg.Now().Add(time.Minute)
	}
	behind := w.Revision > a.seen.Revision || !a.known
	here := behind && w.Desired != nil && w.Desired.ControlEpoch == a.seen.ControlEpoch
	if here && (a.pushed == nil || w.Desired.Revision > a.pushed.Revision) {
		a.pushed = w.Desired
	}
	a.mu.Unlock()
	switch {
	case here:
		poke(a.woken)
	case behind:
		poke(a.syncNow)
	}
}

// wakeLoop applies desired states that came with a wake. If it cannot, the next report gets them.
func (a *Agent) wakeLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.woken:
		}
		a.mu.Lock()
		d := a.pushed
		a.pushed = nil
		a.mu.Unlock()
		if d == nil {
			continue
		}
		if err := a.follow(*d); err != nil {
			a.log.Error("cannot apply the desired state of a wake", "revision", d.Revision, "err", err)
			poke(a.syncNow)
		}
	}
}

// poke makes a channel of capacity one ready. It does nothing if the channel is ready already.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause waits for d, or less if a channel becomes ready or ctx ends. It reports whether ctx is still live.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
