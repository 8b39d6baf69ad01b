package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/agent"
	"github.com/musterhq/muster/agent/machine/awake"
	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/machine/notice"
	"github.com/musterhq/muster/agent/machine/nvhost"
	"github.com/musterhq/muster/agent/net/link"
	"github.com/musterhq/muster/agent/net/stream"
	"github.com/musterhq/muster/agent/self/update"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/image"
	"github.com/musterhq/muster/agent/workload/shell"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// cudaLibraryEnv is the environment variable that names the CUDA library to the checks of GPUs, in place of the
// driver's: the fake one.
const cudaLibraryEnv = "MUSTER_CUDA_LIBRARY"

type runFlags struct {
	hostFlags
	state, guest, logLevel string
	registries             []string
	resolvers              []string
	userspace              bool
	prefetch, anyStore     bool
	probation              time.Duration
	sources                []string
	power                  []string
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent of an enrolled host",
		Long: `Run the agent of an enrolled host until it receives TERM or INT.

What runs on the host goes on without the agent, until the time that was paid for; the next start adopts it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(f.tolerate(cmd.Flags(), os.Args[2:]), f.check()); err != nil {
				return err
			}
			if err := f.run(cmd.Context()); !errors.Is(err, errHandOver) {
				return err
			}
			return handOver()
		},
	}
	f.addRun(cmd)
	return cmd
}

// addRun adds the flags of run, which launch passes on. tolerate decides on unknown ones.
func (f *runFlags) addRun(cmd *cobra.Command) {
	cmd.FParseErrWhitelist.UnknownFlags = true
	fl := cmd.Flags()
	fl.StringVar(&f.state, "state", defaultState, "the agent's state directory")
	fl.StringVar(&f.guest, "guest", "", "the muster-guest binary (default: beside this one)")
	fl.StringSliceVar(&f.registries, "allow-registry", nil, "host:port of a registry that may be at a private address, "+
		"without TLS")
	fl.StringSliceVar(&f.resolvers, "resolver", []string{"1.1.1.1", "9.9.9.9"}, "public name servers for workloads")
	fl.BoolVar(&f.userspace, "userspace-wireguard", false, "never use the kernel's WireGuard")
	fl.BoolVar(&f.prefetch, "prefetch", true, "fetch popular public images while nothing is leased, into a quarter of "+
		"the free disk")
	fl.BoolVar(&f.anyStore, "any-store", false, "mount renters' buckets in stores at any address, without TLS too: for a "+
		"platform of its owner's own users")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	fl.DurationVar(&f.probation, "probation", time.Minute, "for how long all must be well before a new version of the "+
		"agent is kept")
	fl.StringSliceVar(&f.sources, "allow-source", nil, "host:port of a source of releases that may be at a private "+
		"address, without TLS")
	fl.StringSliceVar(&f.power, "power-limit", nil, "watts each GPU may draw, or INDEX=WATTS, UUID=WATTS for one "+
		"(default: its limit is left alone)")
	f.add(cmd)
}

func (f *runFlags) run(ctx context.Context) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	unlock, err := lockState(f.state)
	if err != nil {
		return err
	}
	defer unlock()
	if err := update.Note(f.state, build.Version); err != nil {
		log.Warn("that this version has run here could not be noted", "err", err)
	}
	identity, err := link.Load(f.state)
	if err != nil {
		return err
	}
	log = log.With("host", identity.Host)
	facts, err := f.awaitDocker(ctx, log)
	if err != nil {
		return err
	}
	limits, err := gpu.ParsePowerLimits(f.power)
	if err != nil {
		return fmt.Errorf("--power-limit: %w", err)
	}
	monitor, err := gpu.Start(ctx, gpu.Config{
		PowerLimits: limits,
		LibraryPath: os.Getenv(gpu.LibraryEnv),
		AMDTree:     os.Getenv(gpu.TreeEnv),
		OwnerMemory: f.ownerMemory(),
		Ephemeral:   identity.Ephemeral,
		StateDir:    filepath.Join(f.state, "gpu"),
		Logger:      log,
	})
	if err != nil {
		return err
	}
	defer monitor.Close()
	h := &hostDaemon{flags: f, identity: identity, facts: facts, monitor: monitor, log: log}
	return h.run(ctx)
}

// awaitDocker waits for the daemon: without it the agent can observe nothing, and does not know how GPUs are attached.
func (f *runFlags) awaitDocker(ctx context.Context, log *slog.Logger) (container.Facts, error) {
	for said := false; ; {
		facts, err := f.dockerFacts(ctx)
		if err != nil || facts.Version != "" {
			return facts, err
		}
		if !said {
			log.Warn("waiting for Docker", "evidence", facts.Problems[0].Evidence)
			said = true
		}
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return facts, nil
		}
	}
}

// lockState prevents a second agent from using the same state.
func lockState(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, update.LockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fault.Wrap(err, fault.Conflict, "another agent runs on the state directory %s", dir)
	}
	return func() { f.Close() }, nil
}

// hostDaemon connects the parts of an enrolled host.
type hostDaemon struct {
	flags    *runFlags
	identity *link.Identity
	facts    container.Facts
	monitor  *gpu.Monitor
	log      *slog.Logger
	images   func() []agentapi.CachedImage
	awake    func(bool)

	simulated bool

	proof    atomic.Pointer[link.Proof] // that other hosts reach this one; nil: not tried
	cloud    notice.Cloud
	notices  atomic.Pointer[[]notice.Notice] // what the cloud announces; nil: nothing
	prefetch bool

	described atomic.Pointer[time.Time] // when the CDI specification was last written again
}

func (h *hostDaemon) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if h.flags.scratchDir != "" {
		h.flags.store = scratch.New(h.flags.scratchDir, h.flags.scratchGB, container.Host8(h.identity.Host))
	}
	inv, err := h.flags.inventory(ctx, h.monitor)
	if err != nil {
		return err
	}
	h.simulated = inv.Simulated
	h.makeUVM(ctx)
	h.loadProof(ctx)
	engine, err := h.engine(inv.Simulated)
	if err != nil {
		return err
	}
	defer engine.Close()
	images, err := image.New(image.Config{
		Daemon: engine,
		Dir:    filepath.Join(h.flags.state, "images"),
		Prefix: imagePrefix(h.identity),
		Allow:  h.flags.registries,
		Free:   h.diskFree,
		Driver: h.driver,
		Now:    time.Now,
		Log:    h.log,
	})
	if err != nil {
		return err
	}
	h.images = images.Cached
	conn := link.New(h.identity, h.log)
	defer conn.Close()
	updates, err := h.flags.updater(h.log)
	if err != nil {
		return err
	}
	lock := awake.New(h.log)
	defer lock.Close()
	if !shared(inv) { // a developer's machine may sleep
		h.awake = lock.Set
	}
	h.prefetch = h.flags.prefetch && !inv.Simulated // hosts of one developer share their images already
	a, err := h.agent(engine, images, conn, updates, inv)
	if err != nil {
		return err
	}
	streams, err := stream.New(stream.Config{
		Host:   h.identity.Host.String(),
		Domain: h.identity.StreamDomain,
		CA:     h.identity.StreamCA,
		Sign:   h.identity.Sign,
		Source: a,
		Shell:  shell.New(shell.Engine{Engine: engine}, h.log).Serve,
		Log:    h.log,
	})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	endLeft := engine.LeftExecs()
	wg.Go(func() { endLeft(ctx) })
	dial := func(d agentapi.Dial) {
		wg.Go(func() {
			if err := streams.Serve(ctx, d); err != nil && ctx.Err() == nil {
				h.log.Warn("stream ended", "lease", d.LeaseRef, "purpose", d.Purpose, "err", err)
			}
		})
	}
	if err := conn.Start(link.Handlers{Wake: a.Wake, Dial: dial, Up: a.Connected}); err != nil {
		return err
	}
	h.log.Info("agent runs", "version", build.Version, "gpus", len(inv.GPUs), "attach", inv.AttachMode, "docker",
		h.facts.Version)
	var served, over error
	wg.Go(func() { served = images.Serve(ctx); cancel() })
	wg.Go(func() { updates.Run(ctx) })
	wg.Go(func() { h.watchCloud(ctx, a.InventoryChanged) })
	wg.Go(func() { h.proveLoop(ctx, a.InventoryChanged) })
	wg.Go(func() {
		// The agent runs even if the operator's requests cannot be served.
		err := serveControl(ctx, filepath.Join(h.flags.state, controlSocket), h.monitor.Resets.Requalify, h.log)
		if err != nil {
			h.log.Warn("the operator's requests (muster-agent gpu requalify) are not answered", "err", err)
		}
	})
	wg.Go(func() {
		select {
		case <-updates.Over():
			over = errHandOver
			cancel()
		case <-ctx.Done():
		}
	})
	err = a.Run(ctx)
	cancel()
	wg.Wait()
	h.log.Info("agent ends; what runs on the host goes on")
	if err := errors.Join(err, served); err != nil {
		return err
	}
	return over
}

// imagePrefix returns the prefix that distinguishes this agent's images from those of others on the machine.
func imagePrefix(id *link.Identity) string { return "muster-" + container.Host8(id.Host) }

// mountProgram is the program that mounts renters' buckets.
const mountProgram = "muster-mount"

// siblingProgram returns the path of another program of this version.
func siblingProgram(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(self), name), nil
}

func (h *hostDaemon) engine(simulated bool) (*container.Engine, error) {
	guest := h.flags.guest
	if guest == "" {
		var err error
		if guest, err = siblingProgram("muster-guest"); err != nil {
			return nil, err
		}
	}
	guest, err := filepath.Abs(guest)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(guest); err != nil || info.IsDir() {
		return nil, fault.New(fault.Invalid, "there is no muster-guest at %s: set --guest", guest)
	}
	library := os.Getenv(cudaLibraryEnv)
	check := ""
	if simulated && library == "" {
		h.flags.fabricNCCL = "" // there is no CUDA to measure with
	}
	if !simulated || library != "" {
		state, err := filepath.Abs(h.flags.state)
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(state, "gpucheck")
		if check, err = gpucheck.Prepare(dir, library, h.flags.fabricNCCL); err != nil && h.flags.fabricNCCL != "" {
			h.log.Error("fabrics cannot be measured with --fabric-nccl", "err", err)
			h.flags.fabricNCCL = ""
			check, err = gpucheck.Prepare(dir, library, "")
		}
		if err != nil {
			h.log.Error("GPUs cannot be checked before leases start", "err", err)
		}
	}
	return container.New(container.Config{
		CheckDir:    check,
		NCCL:        check != "" && h.flags.fabricNCCL != "",
		FakeCUDA:    simulated && library != "",
		Docker:      h.flags.docker,
		Host:        h.identity.Host,
		GuestBinary: guest,
		Attach:      container.Attach(h.flags.attach), // "": Docker's best way when a workload is created
		Simulated:   simulated,
		DiskLimited: h.facts.DiskLimited,
		Infiniband:  rdmaTree("dev/infiniband"),
		Overlay:     netip.MustParsePrefix("10.77.0.0/20"),
		Log:         h.log,
	})
}

func (h *hostDaemon) agent(engine *container.Engine, images *image.Puller, conn *link.Conn, updates *update.Updater,
	inv agentapi.Inventory) (*agent.Agent, error) {
	resolvers := make([]netip.Addr, len(h.flags.resolvers))
	for i, r := range h.flags.resolvers {
		var err error
		if resolvers[i], err = netip.ParseAddr(r); err != nil {
			return nil, fmt.Errorf("--resolver: %w", err)
		}
	}
	state, err := filepath.Abs(h.flags.state) // Docker mounts from it and needs an absolute path
	if err != nil {
		return nil, err
	}
	mount, err := siblingProgram(mountProgram)
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{
		MountProgram: mount,
		AnyStore:     h.flags.anyStore,
		Host:         h.identity.Host,
		Key:          h.identity.AttestKey(),
		Version:      build.Version,
		StateDir:     state,
		BootID:       inv.BootID,
		Cores:        coresOf(inv),
		BootMS:       hostinfo.BootMS,
		Now:          time.Now,
		Engine:       engine,
		Images:       images,
		Received:     images.Received,
		GPUs:         agent.MonitoredGPUs(h.monitor),
		Link:         conn,
		Inventory:    h.inventory,
		Simulated:    inv.Simulated,
		Resolvers:    resolvers,
		Caps:         h.flags.caps,
		Prefetch:     h.prefetch,
		Log:          h.log,
		Advertise:    h.flags.advertise,
		Underlay:     h.flags.underlay,
		Awake:        h.awake,
		Updates:      updates,
		Scratch:      h.flags.store,
		Userspace:    h.flags.userspace,
		RDMA:         h.flags.lent,
		Partitions:   h.flags.partitions(),
		Shared:       h.flags.shares.all,
		Leaving:      h.leaving,
	})
}

// inventory returns the inventory to report; a value that cannot be read now is a problem in it.
func (h *hostDaemon) inventory(ctx context.Context) agentapi.Inventory {
	h.makeUVM(ctx)
	inv, err := h.flags.inventory(ctx, h.monitor)
	if h.describeGPUs(ctx, inv) {
		inv, err = h.flags.inventory(ctx, h.monitor)
	}
	inv.Images, inv.Prefetch = h.images(), h.prefetch
	if err != nil {
		inv.Problems = append(inv.Problems, agentapi.Problem{Code: "inventory_incomplete", Severity: "bad",
			Cause: "The host could not be read in full.", Evidence: err.Error()})
	}
	inv.MultiNode = h.direct()
	if p := h.reachProblem(); p != nil {
		inv.Problems = append(inv.Problems, *p)
	}
	if all := h.notices.Load(); all != nil {
		if p := notice.Problem(h.cloud, *all); p != nil {
			inv.Problems = append(inv.Problems, *p)
		}
	}
	inv.Clean()
	return inv
}

// watchCloud watches what the cloud that this machine is rented from, if any, announces about it.
func (h *hostDaemon) watchCloud(ctx context.Context, changed func()) {
	if h.simulated {
		return
	}
	h.cloud = notice.CloudOf("")
	notice.New(h.cloud).Watch(ctx, notice.Every, func(all []notice.Notice) {
		h.log.Warn("the cloud's announcements about this machine have changed", "cloud", h.cloud, "announced", all)
		h.notices.Store(&all)
		changed()
	})
}

// leaving returns what the cloud announces about this machine, for people; "" = nothing.
func (h *hostDaemon) leaving() string {
	if all := h.notices.Load(); all != nil && len(*all) > 0 {
		return fmt.Sprintf("%s: %s", h.cloud, notice.Text(*all))
	}
	return ""
}

// makeUVM makes the device nodes of CUDA's memory manager, without which no workload with GPUs starts, unless they are
// there.
func (h *hostDaemon) makeUVM(ctx context.Context) {
	if version, _ := h.monitor.Driver(); version == "" || h.simulated || h.monitor.Vendor() != agentapi.NVIDIA {
		return
	}
	if err := (nvhost.Host{}).MakeUVM(ctx); err != nil {
		h.log.Warn("the device nodes of CUDA's memory manager could not be made", "err", err)
	}
}

// describeEvery is how often at most the agent has a CDI specification written again.
const describeEvery = 10 * time.Minute

// describeGPUs has the CDI specification written again if it does not match the host, as after a boot, an update of the
// driver, or a slice that was recreated. It reports whether that was done.
func (h *hostDaemon) describeGPUs(ctx context.Context, inv agentapi.Inventory) bool {
	if h.simulated || h.monitor.Vendor() != agentapi.NVIDIA || !describable(inv.Problems) {
		return false
	}
	now, last := time.Now(), h.described.Load()
	if last != nil && now.Sub(*last) < describeEvery {
		return false
	}
	facts, err := h.flags.dockerFacts(ctx)
	if err != nil || !facts.CDI.Renewable(nvhost.CDIFolder, nvhost.CDIFile) {
		return false
	}
	h.described.Store(&now)
	if err := (nvhost.Host{}).DescribeGPUs(ctx); err != nil {
		h.log.Warn("the CDI specification, which does not match this host, could not be written again", "err", err)
		return false
	}
	h.log.Info("the CDI specification did not match this host and was written again")
	return true
}

// describable reports whether a new CDI specification may solve one of the problems.
func describable(all []agentapi.Problem) bool {
	return slices.ContainsFunc(all, func(p agentapi.Problem) bool {
		return p.Code == "cdi_not_usable" || p.Code == "slices_not_in_cdi"
	})
}

func (h *hostDaemon) driver() image.Driver {
	version, cuda := h.monitor.Driver()
	if h.monitor.Vendor() == agentapi.AMD {
		return image.Driver{AMD: true}
	}
	return image.Driver{Version: version, CUDA: cuda, Models: h.monitor.Models()}
}

func (h *hostDaemon) diskFree() (int64, error) {
	gb, err := hostinfo.DiskFreeGB(h.facts.RootDir)
	free := gb * 1e9
	if store := h.flags.store; err == nil && store != nil { // space for scratch is not for images
		if room, shared, err := roomOf(store, h.facts.RootDir); err == nil && shared && store.Bounded() {
			free = max(0, free-(room.Total-room.Taken))
		}
	}
	return free, err
}
