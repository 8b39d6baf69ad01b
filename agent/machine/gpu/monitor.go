// Package gpu monitors a host's GPUs for the agent: which GPUs there are, what they do, and whether they can be
// trusted.
//
// Invariants: NVML is never loaded into the agent. A sick GPU hangs a call for minutes and a symbol missing in an older
// driver kills its process, so NVML is loaded in a child process (package probe) with a deadline per call; a child that
// hangs or dies is replaced, and the agent goes on. A GPU's health only gets better by evidence: a quarantine persists
// across restarts of the agent until the GPU was reset and passed a check.
package gpu

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/amd"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/agent/machine/hostinfo"
)

// TreeEnv is the environment variable that names a simulated tree of AMD's GPUs.
const TreeEnv = amd.TreeEnv

// LibraryEnv is the environment variable that names the NVML library to the probe command.
const LibraryEnv = "MUSTER_NVML_LIBRARY"

// Config configures a Monitor. The comments name the defaults of zero values.
type Config struct {
	Exe []string // command that runs the probe, without the vendor; default: this executable with "probe"
	Env []string // added to the probe's environment, "MUSTER_FAKE_NVML=…"
	// AMDTree is a folder to read in place of /sys: the GPUs are AMD's, and simulated. "" = the host's own GPUs.
	AMDTree     string
	LibraryPath string       // NVML library; "" = libnvidia-ml.so.1 where the loader finds it
	StateDir    string       // where health is stored; "" = nowhere (to read the inventory only)
	Logger      *slog.Logger // default: discards
	Now         func() time.Time
	SysFS       string // default: /sys; none if the GPUs are simulated
	ProcFS      string // default: /proc
	MPSPipes    string // default: /tmp/nvidia-mps; none if the GPUs are simulated
	// OwnerMemory is how many bytes of a GPU's memory processes outside any lease may hold while the GPU still counts as
	// free; default: the constant OwnerMemory; negative: none.
	OwnerMemory int64
	PowerLimits PowerLimits // nil: the GPUs' limits are not changed
	Ephemeral   bool        // the host's GPUs may be others after a boot: none of them is missing then
	DXG         string      // default: /dev/dxg; none if the GPUs are simulated
	KernelLog   string      // default: /dev/kmsg if readable; none if the GPUs are simulated
	// Reset resets a GPU that nothing uses; default: nvidia-smi --gpu-reset, without persistence mode meanwhile; nothing
	// if NVIDIA's GPUs are simulated; AMD's driver.
	Reset func(ctx context.Context, uuid string) error

	timing timing               // tests'
	smi    smiRunner            // default: nvidia-smi; tests replace it
	slept  func() time.Duration // how long the host was suspended since it booted; tests replace it
}

func (c *Config) defaults() error {
	if len(c.Exe) == 0 {
		exe, err := os.Executable()
		if err != nil {
			return err
		}
		c.Exe = []string{exe, "probe"}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.ProcFS == "" {
		c.ProcFS = "/proc"
	}
	if c.AMDTree != "" {
		c.SysFS = c.AMDTree
		c.Env = append(slices.Clone(c.Env), amd.TreeEnv+"="+c.AMDTree)
	}
	if c.OwnerMemory == 0 {
		c.OwnerMemory = OwnerMemory
	}
	if c.slept == nil {
		c.slept = hostinfo.Suspended
	}
	c.timing.defaults()
	return nil
}

// Monitor watches the GPUs of this host. It and its parts are safe for concurrent use. Each part knows only those that
// Start makes before it.
type Monitor struct {
	Diagnosis *Diagnosis
	Telemetry *Telemetry
	Owners    *Owners
	Leases    *Leases
	Checks    *Checks
	Resets    *Resets

	reg     *registry
	driver  *driver
	power   *powerKeeper
	remaker *remaker
	watcher *watcher
	cancel  context.CancelFunc
}

// Start starts the probe and the health checks. It is no error if the host has no NVML library or no GPUs: the
// inventory then contains a problem. Start fails only if the state directory cannot be used. The Monitor runs until
// Close, or until ctx ends.
func Start(ctx context.Context, cfg Config) (*Monitor, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	boot, err := hostinfo.BootID()
	if err != nil {
		return nil, err
	}
	store, mem, err := openStore(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	of := makerOf(cfg)
	cfg = withVendor(cfg, of)
	reg := &registry{cfg: cfg, maker: of, log: cfg.Logger, boot: boot, changed: make(chan struct{}, 1),
		kick: make(chan struct{}, 1), store: store, mem: mem, fabrics: map[string]wire.Fabric{}}
	dg := &Diagnosis{reg: reg}
	dr := &driver{reg: reg, diagnosis: dg, ctx: ctx, slept: cfg.slept()}
	dr.probe = newProber(cfg, of.driver(), dr.hung)
	for uuid, r := range mem.GPUs {
		dr.probe.seenAt(uuid, r.GPU.PCIBus)
	}
	te := &Telemetry{reg: reg, diagnosis: dg, driver: dr}
	ow := &Owners{reg: reg, driver: dr, unleased: map[string]owned{}, shared: map[string]owned{}}
	pk := &powerKeeper{reg: reg, driver: dr}
	rm := &remaker{reg: reg, driver: dr, owners: ow}
	ls := &Leases{reg: reg, driver: dr, owners: ow, remaker: rm}
	cs := &Checks{reg: reg, owners: ow}
	wa := &watcher{reg: reg, diagnosis: dg, driver: dr, telemetry: te, owners: ow, power: pk, remaker: rm, leases: ls}
	rs := &Resets{reg: reg, diagnosis: dg, driver: dr, owners: ow, watcher: wa}
	wa.done.Go(func() { wa.watch(ctx) })
	wa.done.Go(func() { wa.listen(ctx) })
	return &Monitor{Diagnosis: dg, Telemetry: te, Owners: ow, Leases: ls, Checks: cs, Resets: rs,
		reg: reg, driver: dr, power: pk, remaker: rm, watcher: wa, cancel: cancel}, nil
}

// Close ends the probe. It returns within seconds even if the probe is stuck in the driver.
func (m *Monitor) Close() error {
	m.cancel()
	m.driver.probe.close()
	m.watcher.done.Wait()
	return nil
}

// Driver returns the driver's version and the highest CUDA version that it supports, from its last answer; "" before
// the first.
func (m *Monitor) Driver() (version, cuda string) {
	m.reg.mu.Lock()
	defer m.reg.mu.Unlock()
	return m.reg.sys.Driver, m.reg.sys.CUDA
}

// Models returns the model of each GPU seen since the host booted, in no order.
func (m *Monitor) Models() []string {
	m.reg.mu.Lock()
	defer m.reg.mu.Unlock()
	var out []string
	for _, r := range m.reg.mem.GPUs {
		if r.Seen == m.reg.boot {
			out = append(out, r.GPU.Model)
		}
	}
	return out
}
