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
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/hostmem"
	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/self/update"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/storage/sharedfs"
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
	cfg         Config
	log         *slog.Logger
	disk        disk
	journal     *journal.Journal
	desired     *desired
	shared      *sharedFolders
	memory      *memoryWatch
	network     *network
	storage     *storage
	images      *images
	inventories *inventories
	telemetry   *telemetry
	metering    *metering
	use         *gpuUse
	checks      *checker
	resets      *resetter
	rdma        *rdmaPorts

	syncNow chan struct{} // a report is due
	rescan  chan struct{} // Docker's list must be read again

	runs  *runs // whose lock guards what follows
	seq   uint64
	older bool // the server speaks the protocol before this agent's

	born    time.Time
	ctx     context.Context
	workers sync.WaitGroup
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
		cfg:     cfg,
		log:     cfg.Log,
		disk:    disk{cfg.StateDir},
		syncNow: make(chan struct{}, 1),
		rescan:  make(chan struct{}, 1),
		born:    cfg.Now(),
	}
	if err := a.disk.prepare(); err != nil {
		return nil, fmt.Errorf("prepare the state folder: %w", err)
	}
	var err error
	a.journal, err = journal.Open(filepath.Join(cfg.StateDir, "journal"),
		journal.Config{Host: cfg.Host.String(), Key: cfg.Key, BootID: cfg.BootID, Now: cfg.Now, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	if err := a.wire(); err != nil {
		return nil, errors.Join(err, a.journal.Close())
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
		a.runs.add(ref, rec)
	}
	return a, nil
}

// wire makes the agent's parts.
func (a *Agent) wire() (err error) {
	cfg := a.cfg
	a.runs = &runs{disk: a.disk, boot: cfg.BootID, now: cfg.Now, log: cfg.Log, report: a.syncNow,
		leases: map[string]*lease{}}
	inventory := make(chan struct{}, 1)
	a.memory = newMemoryWatch(cfg, a.runs, inventory)
	a.inventories = &inventories{read: cfg.Inventory, link: cfg.Link, gpus: cfg.GPUs.Diagnosis, memory: a.memory,
		runs: a.runs, log: cfg.Log, due: inventory}
	a.use = &gpuUse{gpus: cfg.GPUs, simulated: cfg.Simulated, log: cfg.Log}
	a.checks = newChecker(cfg, a.runs)
	a.resets = newResetter(cfg, a.runs)
	a.rdma = &rdmaPorts{lent: cfg.RDMA, partitions: cfg.Partitions, runs: a.runs, log: cfg.Log}
	a.metering = &metering{journal: a.journal, engine: cfg.Engine, gpus: cfg.GPUs.Telemetry, runs: a.runs,
		tick: cfg.Tick, bootMS: cfg.BootMS, now: cfg.Now, log: cfg.Log}
	a.telemetry = &telemetry{gpus: cfg.GPUs.Telemetry, link: cfg.Link, journal: a.journal, runs: a.runs,
		bootMS: cfg.BootMS, now: cfg.Now, log: cfg.Log}
	a.network = &network{host8: container.Host8(cfg.Host), caps: cfg.Caps, every: cfg.FirewallEvery, now: cfg.Now,
		log: cfg.Log, runs: a.runs}
	a.shared = newSharedFolders(cfg, a.runs)
	server := &volumeServer{link: cfg.Link, journal: a.journal, bootMS: cfg.BootMS}
	a.storage = newStorage(cfg, a.runs, a.network, server.send)
	a.desired = &desired{runs: a.runs, disk: a.disk, journal: a.journal, shared: a.shared, resets: a.resets, log: cfg.Log,
		woken: make(chan struct{}, 1)}
	if a.desired.seen, err = a.disk.loadSeen(); err != nil {
		return fmt.Errorf("load the revisions seen: %w", err)
	}
	a.images, err = newImages(cfg, a.runs, inventory)
	return err
}

// Run works until ctx ends. The host's workloads continue without the agent; the next agent process adopts them.
func (a *Agent) Run(ctx context.Context) error {
	a.runs.mu.Lock()
	a.ctx, a.runs.begin = ctx, a.startWorker
	for _, l := range a.runs.leases {
		a.startWorker(l)
	}
	a.runs.mu.Unlock()
	a.cfg.GPUs.Owners.LeasedBy(a.checks.busy)
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){
		a.syncLoop, a.desired.run, a.inventories.run, a.metering.run, a.telemetry.run, a.images.clean,
		a.scanLoop, a.network.run, a.storage.sweepScratch, a.storage.mounts.sweepBuckets, a.storage.mounts.sweepLazies,
		a.network.sweep, a.shared.sweep, a.checks.run, a.resets.run, a.storage.client.Run, a.shared.run,
		func(ctx context.Context) { a.cfg.Engine.Watch(ctx, a.containerChanged) }} {
		loops.Go(func() { loop(ctx) })
	}
	if a.cfg.Prefetch {
		loops.Go(func() { a.images.prefetchLoop(ctx) })
	}
	// Simulated GPUs pin nothing, and share the machine with programs that are not the agent's.
	if !a.cfg.Simulated || a.cfg.Memory != (hostmem.Reader{}) {
		loops.Go(func() { a.memory.run(ctx) })
	}
	loops.Wait()
	a.workers.Wait()
	a.storage.selves.close()
	a.storage.mounts.close()
	a.images.countPulls() // the next process reports it
	return a.journal.Close()
}

// Connected notifies the agent that the link is up, the first time or again.
func (a *Agent) Connected() {
	poke(a.inventories.due)
	poke(a.syncNow)
}

// InventoryChanged notifies the agent that its inventory has changed, so that it is sent at once.
func (a *Agent) InventoryChanged() { poke(a.inventories.due) }

// Wake notifies the agent that the server has a newer state, which may be in the message, or that a person watches its
// telemetry. It does not wait.
func (a *Agent) Wake(w agentapi.Wake) {
	if w.Watch {
		a.telemetry.watch()
	}
	a.desired.wake(w)
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
