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
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/amd"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
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
	KernelLog   string      // default: /dev/kmsg if readable; none if the GPUs are simulated
	// Reset resets a GPU that nothing uses; default: nvidia-smi --gpu-reset, nothing if NVIDIA's GPUs are simulated; AMD's
	// driver.
	Reset func(ctx context.Context, uuid string) error

	timing timing               // tests'
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

// Monitor watches the GPUs of this host. It is safe for concurrent use.
type Monitor struct {
	cfg     Config
	maker   maker
	log     *slog.Logger
	probe   *prober
	boot    string
	changed chan struct{}
	kick    chan struct{}   // requests a look at all GPUs now
	ctx     context.Context // ends with the Monitor
	cancel  context.CancelFunc
	done    sync.WaitGroup

	looking sync.Mutex // held during a look at the GPUs; taken before mu
	hang    hang

	mu       sync.Mutex
	store    store
	mem      memory
	blind    error // why the driver does not answer at present; nil: it answers
	sys      wire.System
	leased   func() map[string]bool // returns the GPUs that have a lease; nil: not set yet
	owners   map[string]owned       // GPUs without a lease that their owner uses
	ownerUse map[string]owned       // GPUs with a lease that their owner uses too
	slept    time.Duration          // as the host's suspensions were last seen
	woke     time.Time              // when the host was first seen to be awake again; zero: it was never suspended
	fabrics  map[string]wire.Fabric // registrations with NVSwitches, of GPUs that have any
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
	m := &Monitor{cfg: cfg, maker: of, log: cfg.Logger, boot: boot,
		changed: make(chan struct{}, 1), kick: make(chan struct{}, 1),
		ctx: ctx, cancel: cancel, store: store, mem: mem, owners: map[string]owned{}, ownerUse: map[string]owned{},
		fabrics: map[string]wire.Fabric{}}
	m.slept = cfg.slept()
	m.probe = newProber(cfg, of.driver(), m.hung)
	for uuid, r := range m.mem.GPUs {
		m.probe.seenAt(uuid, r.GPU.PCIBus)
	}
	m.done.Go(func() { m.watch(ctx) })
	m.done.Go(func() { m.listen(ctx) })
	return m, nil
}

// Close ends the probe. It returns at once even if the probe is stuck in the driver.
func (m *Monitor) Close() error {
	m.cancel()
	m.probe.close()
	m.done.Wait()
	return nil
}

// Driver returns the driver's version and the highest CUDA version that it supports, from its last answer; "" before
// the first.
func (m *Monitor) Driver() (version, cuda string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sys.Driver, m.sys.CUDA
}

// Models returns the model of each GPU seen since the host booted, in no order.
func (m *Monitor) Models() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, r := range m.mem.GPUs {
		if r.Seen == m.boot {
			out = append(out, r.GPU.Model)
		}
	}
	return out
}

// Batch is samples taken together. GPUSample.AtMS is left 0: the sender knows the anchor that maps BootMS.
type Batch struct {
	BootMS  int64 // CLOCK_BOOTTIME, milliseconds
	Samples []agentapi.GPUSample
}

// Sample reads the named GPUs (none named: all). A GPU that does not answer in time is left out.
func (m *Monitor) Sample(ctx context.Context, uuids ...string) (Batch, error) {
	uuids, err := m.orAll(ctx, uuids)
	if err != nil {
		return Batch{}, err
	}
	samples, failed := each[wire.Sample](ctx, m, wire.MethodSample, uuids)
	if len(uuids) > 0 && len(samples) == 0 {
		return Batch{}, unanswered(failed)
	}
	b := Batch{BootMS: hostinfo.BootMS()}
	for _, uuid := range uuids {
		if s, ok := samples[uuid]; ok {
			b.Samples = append(b.Samples, s)
		}
	}
	return b, nil
}

// EnergyMJ reads the energy counters of the named GPUs, in millijoules since the driver was loaded. GPUs that do not
// report one are left out. A counter that went down was reset.
func (m *Monitor) EnergyMJ(ctx context.Context, uuids ...string) (map[string]int64, error) {
	b, err := m.Sample(ctx, uuids...)
	if err != nil {
		return nil, err
	}
	energy := map[string]int64{}
	for _, s := range b.Samples {
		if s.EnergyMJ != nil {
			energy[s.GPU] = *s.EnergyMJ
		}
	}
	return energy, nil
}

// Requalify resets a quarantined or suspect GPU, which must have no lease and not be in use, and makes it healthy if it
// passes the check. It returns a Conflict if the GPU still has a defect, which the error names, or has a lease.
func (m *Monitor) Requalify(ctx context.Context, uuid string) error {
	if state := m.Health()[uuid].State; state == "" {
		return fault.New(fault.NotFound, "GPU %s not found on this host", uuid)
	} else if state == Healthy {
		return fault.New(fault.Conflict, "%s is healthy", uuid)
	}
	if isSlice(uuid) || m.known()[uuid].GPU.MIG.Or(false) {
		return fault.New(fault.Conflict, "%s is split or a slice: a reset would end the leases of its other slices and "+
			"destroy the layout. When none has a lease, reset it with nvidia-smi, make the layout again, and restart the agent",
			uuid)
	}
	if leased, known := m.leasedNow(); !known {
		return fault.New(fault.Unavailable, "the agent is just starting: it does not know yet which GPUs have a lease")
	} else if u := leasedAmong(leased, m.maker.together(m, uuid)); u == uuid {
		return fault.New(fault.Conflict, "%s has a lease: it can be reset when that has ended", uuid)
	} else if u != "" {
		return fault.New(fault.Conflict, "a reset of %s resets its whole hive, and %s has a lease: it can be reset when "+
			"that has ended", uuid, u)
	}
	m.looking.Lock()
	defer m.looking.Unlock()
	if _, err := m.system(ctx); err != nil {
		return asFault(err)
	}
	if err := m.maker.reset(ctx, m, uuid); err != nil {
		return fault.Wrap(err, fault.Unavailable, "%s could not be reset: %v", uuid, err)
	}
	if err := m.lookAfterReset(ctx, uuid); err != nil {
		return fault.Wrap(err, fault.Conflict, "%s does not pass the check after its reset: %v", uuid, err)
	}
	if h := m.Health()[uuid]; h.State != Healthy {
		return fault.New(fault.Conflict, "%s is still %s after its reset: %s", uuid, h.State, h.Reason)
	}
	return nil
}

// leasedAmong returns the first of the GPUs that has a lease; "" if none has.
func leasedAmong(leased map[string]bool, uuids []string) string {
	for _, u := range uuids {
		if leased[u] {
			return u
		}
	}
	return ""
}

// orAll returns uuids, or every GPU that the driver lists if uuids is empty.
func (m *Monitor) orAll(ctx context.Context, uuids []string) ([]string, error) {
	if len(uuids) > 0 {
		return uuids, nil
	}
	sys, err := m.system(ctx)
	for _, d := range sys.Devices {
		uuids = append(uuids, d.UUIDs()...)
	}
	return uuids, asFault(err)
}

// each sends the same request about several GPUs at once. A sick GPU fails alone.
func each[T any](ctx context.Context, m *Monitor, method string,
	uuids []string) (answers map[string]T, failed map[string]error) {
	answers, failed = map[string]T{}, map[string]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, uuid := range uuids {
		wg.Go(func() {
			var v T
			err := m.call(ctx, method, uuid, &v)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[uuid] = err
				return
			}
			answers[uuid] = v
		})
	}
	wg.Wait()
	return answers, failed
}

// call sends a request about one GPU. A refusal may be evidence against the GPU. (The prober reports hangs.)
func (m *Monitor) call(ctx context.Context, method, uuid string, out any) error {
	err := m.probe.call(ctx, method, uuid, out)
	var refusal *wire.Error
	if errors.As(err, &refusal) {
		if e, ok := m.callEvidence(refusal); ok {
			m.accuse(uuid, e)
		}
	}
	return err
}

// asFault converts the error of a failed call for callers: Unavailable with the cause, unless it is a fault already.
func asFault(err error) error {
	if err == nil || fault.From(err) != nil {
		return err
	}
	return fault.Wrap(err, fault.Unavailable, "the GPU cannot be asked: %v", err)
}

func unanswered(failed map[string]error) error {
	for _, err := range failed {
		return fault.Wrap(err, fault.Unavailable, "no GPU answers: %v", err)
	}
	return fault.New(fault.Unavailable, "no GPU answers")
}

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
