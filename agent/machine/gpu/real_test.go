package gpu

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/agent/machine/gpu/fakekfd"
	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// killProbe ends the present probe, so that the next call starts another that has no handles.
func killProbe(m *Monitor) {
	m.driver.probe.mu.Lock()
	c := m.driver.probe.child
	m.driver.probe.mu.Unlock()
	if c != nil {
		_ = syscall.Kill(c.cmd.Process.Pid, syscall.SIGKILL)
		<-c.reaped
	}
}

// NVML may answer GPU_IS_LOST when any GPU is looked up by its UUID while another is lost. One GPU that fell off the
// bus must not take the others with it.
func TestLostGPUDoesNotAccuseTheOthers(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 8)
	m := h.start(t, func(c *Config) { c.timing.watch = time.Hour })
	inventory(t, m)
	h.fault(t, 3, func(g *fakeprofile.GPU) { g.Lost = 1 })
	killProbe(m)
	inv := inventory(t, m)
	for i, g := range inv.GPUs {
		want := string(Healthy)
		if i == 3 {
			want = string(Quarantined)
		}
		if g.Health != want {
			t.Errorf("GPU %d: %s (%s), want %s", i, g.Health, g.HealthReason, want)
		}
	}
	others := slices.Concat(h.GPUs[:3], h.GPUs[4:])
	for _, g := range others {
		if b, err := m.Telemetry.Sample(t.Context(), g.UUID); err != nil || len(b.Samples) != 1 {
			t.Errorf("%s: %v", g.UUID, err)
		}
	}
}

// A lookup that fails is not evidence against a GPU, whatever its code.
func TestLookupsAccuseNobody(t *testing.T) {
	t.Parallel()
	for _, code := range []int{wire.CodeGPULost, wire.CodeUnknown, wire.CodeResetRequired} {
		if e, ok := CallEvidence(&wire.Error{Code: code, Lookup: true}); ok {
			t.Errorf("code %d: %+v", code, e)
		}
	}
}

// An NVLink in the middle of the list that the device does not know does not hide those after it.
func TestInactiveLinks(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 1)
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.NVLinksDown = 4 })
	links := inventory(t, h.start(t)).GPUs[0].NVLinks
	active := 0
	for _, l := range links {
		if l.Active {
			active++
		}
	}
	if len(links) != 18 || active != 14 {
		t.Errorf("%d links, %d active", len(links), active)
	}
}

// The kernel also uses the memory of a Grace machine's GPU: memory in use does not delay a lease, and the GPU's NUMA
// node does not count as a node with processors.
func TestGrace(t *testing.T) {
	t.Parallel()
	h := newHost(t, "NVIDIA GH200 480GB", 1)
	m := h.start(t)
	g := inventory(t, m).GPUs[0]
	if g.NUMANode.Or(-1) != 0 || g.VRAMMB != 97871 {
		t.Errorf("NUMA node %+v, %d MB", g.NUMANode, g.VRAMMB)
	}
	if err := m.Leases.NoteBefore(t.Context(), g.UUID); err != nil {
		t.Fatal(err)
	}
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.StuckMiB = 30_000 }) // cached files
	if err := m.Leases.WaitClean(t.Context(), g.UUID); err != nil {
		t.Error(err)
	}
}

// The memory of a GPU without its own is the system's, and values that such a GPU cannot report are not queried.
func TestUnifiedMemory(t *testing.T) {
	t.Parallel()
	h := newHost(t, "NVIDIA GB10", 1)
	m := h.start(t, func(c *Config) { c.ProcFS = t.TempDir(); writeProc(t, c.ProcFS) })
	inv := inventory(t, m)
	if len(inv.GPUs) != 1 || inv.GPUs[0].VRAMMB != 122880 || inv.GPUs[0].Health != "healthy" || len(inv.Problems) != 0 {
		t.Fatalf("%+v", inv)
	}
	b, err := m.Telemetry.Sample(t.Context())
	if err != nil || len(b.Samples) != 1 || b.Samples[0].MemUsed != nil || b.Samples[0].PowerMW == nil {
		t.Errorf("%+v, %v", b, err)
	}
	if err := m.Leases.WaitClean(t.Context(), inv.GPUs[0].UUID); err != nil {
		t.Error(err)
	}
}

// writeProc writes what is read of /proc: memory, and this process as a desktop's.
func writeProc(t *testing.T, root string) {
	t.Helper()
	pid := filepath.Join(root, fmt.Sprint(os.Getpid()))
	if err := os.MkdirAll(pid, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(root, "meminfo"): "MemTotal:       125829120 kB\nMemFree: 1 kB\n",
		filepath.Join(pid, "comm"):     "Xorg\n",
		filepath.Join(pid, "cgroup"):   "0::/user.slice/user-1000.slice/session-2.scope\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var update = flag.Bool("update", false, "write the inventories of the simulated machines")

// What the agent finds on each simulated machine is what docs/hardware/simulated shows.
func TestSimulatedMachines(t *testing.T) {
	t.Parallel()
	for _, machine := range fakeprofile.Machines {
		t.Run(machine.Name, func(t *testing.T) {
			t.Parallel()
			p, err := machine.Profile(0)
			if err != nil {
				t.Fatal(err)
			}
			h := &host{Profile: p, path: filepath.Join(t.TempDir(), "profile"), state: ""}
			if err := p.Save(h.path); err != nil {
				t.Fatal(err)
			}
			if machine.DesktopMiB > 0 {
				screen := fakeprofile.Process{PID: os.Getpid(), MemMB: machine.DesktopMiB, Graphics: true}
				if err := fakeprofile.SetProcesses(h.path, map[string][]fakeprofile.Process{h.uuid(0): {screen}}); err != nil {
					t.Fatal(err)
				}
			}
			m := h.start(t, func(c *Config) { c.ProcFS = t.TempDir(); writeProc(t, c.ProcFS) })
			golden(t, machine.Name, machine.About, m)
		})
	}
	for _, machine := range fakekfd.Machines {
		t.Run(machine.Name, func(t *testing.T) {
			t.Parallel()
			m, _ := amdHost(t, machine.Name, func(m *fakekfd.Machine) {
				if m.Driver == "" { // it would be named after the kernel that the test runs on
					m.Driver = "6.8.5"
				}
			})
			golden(t, machine.Name, machine.About, m)
		})
	}
}

// golden compares what a Monitor finds with the file of the machine.
func golden(t *testing.T, name, about string, m *Monitor) {
	t.Helper()
	var inv agentapi.Inventory
	inventory(t, m).Fill(&inv)
	got, err := json.MarshalIndent(simulated{about, inv.Driver, inv.AMDGPU, inv.CUDAMax, inv.GPUs, inv.Topology, inv.P2P,
		inv.Problems}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	golden := filepath.Join("../../../docs/hardware/simulated", name+".json")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("go test ./agent/machine/gpu -run TestSimulatedMachines -update rewrites it:\n%s", diff)
	}
}

// simulated is the GPU part of an inventory, as `muster-agent inventory --json` prints it.
type simulated struct {
	About    string             `json:"about"`
	Driver   string             `json:"driver"`
	AMDGPU   string             `json:"amdgpu,omitempty"`
	CUDAMax  string             `json:"cuda_max"`
	GPUs     []agentapi.GPU     `json:"gpus"`
	Topology [][]string         `json:"topology"`
	P2P      [][]string         `json:"p2p"`
	Problems []agentapi.Problem `json:"problems,omitempty"`
}

// A cloud VM comes back with other GPUs in the same slots.
func TestCloudMachineChangesItsGPUs(t *testing.T) {
	t.Parallel()
	machine, ok := fakeprofile.MachineNamed("cloud-l40s")
	if !ok {
		t.Fatal("no such machine")
	}
	first, err1 := machine.Profile(0)
	second, err2 := machine.Profile(1)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	h := &host{Profile: first, path: filepath.Join(t.TempDir(), "profile"), state: t.TempDir()}
	if err := first.Save(h.path); err != nil {
		t.Fatal(err)
	}
	m := h.start(t)
	becomes(t, m, first.GPUs[0].UUID, Healthy)
	m.Close()
	if err := second.Save(h.path); err != nil {
		t.Fatal(err)
	}
	m = h.start(t)
	becomes(t, m, second.GPUs[0].UUID, Healthy)
	becomes(t, m, first.GPUs[0].UUID, Quarantined) // within a boot, it can only have gone away
}

// A driver that stalls as a whole is not evidence against any GPU, however often it does; a GPU that hangs alone is
// accused.
func TestDriverWideStallAccusesNobody(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 4)
	m := h.start(t, func(c *Config) {
		c.timing.watch, c.timing.call, c.timing.start = time.Hour, 2*time.Second, 10*time.Second
	})
	becomes(t, m, h.uuid(3), Healthy)
	m.reg.looking.Lock() // the look that saw it is over, and there is no other
	defer m.reg.looking.Unlock()
	set := func(stall string) {
		t.Helper()
		if err := fakeprofile.Change(h.path, func(p *fakeprofile.Profile) error { p.Stall = stall; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	set("nvmlDeviceGetMemoryInfo_v2")
	if _, err := m.Telemetry.Sample(t.Context()); err == nil {
		t.Error("samples of a driver that stands still")
	}
	if e := m.Diagnosis.Pending(); len(e) != 0 {
		t.Errorf("a stall of the driver was blamed on GPUs: %+v", e)
	}
	set("")
	b, err := m.Telemetry.Sample(t.Context())
	if err != nil || len(b.Samples) != 4 {
		t.Errorf("afterwards: %+v, %v", b, err)
	}
	h.fault(t, 2, func(g *fakeprofile.GPU) { g.Hang = "nvmlDeviceGetMemoryInfo_v2" })
	if b, err := m.Telemetry.Sample(t.Context()); err != nil || len(b.Samples) != 3 {
		t.Errorf("%+v, %v", b, err)
	}
	if e := m.Diagnosis.Pending(); len(e) != 1 || e[0].Kind != kindHang || e[0].GPU != h.uuid(2) {
		t.Errorf("%+v", e)
	}
}

// Xids that any program can cause count once per lease and never take a GPU out of service, however many come.
func TestRentersCannotQuarantineAGPU(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 1)
	m := h.start(t, func(c *Config) { c.timing.watch = time.Hour })
	becomes(t, m, h.uuid(0), Healthy)
	for lease := range 4 {
		if err := m.Leases.NoteBefore(t.Context(), h.uuid(0)); err != nil {
			t.Fatal(err)
		}
		for _, xid := range []int{8, 32, 39, 69, 70, 83, 94, 135, 4711} {
			m.Diagnosis.accuse(h.uuid(0), XidEvidence(xid))
		}
		m.reg.mu.Lock()
		strikes := len(m.reg.mem.GPUs[h.uuid(0)].Strikes)
		for i := range m.reg.mem.GPUs[h.uuid(0)].Strikes { // the next lease comes later
			m.reg.mem.GPUs[h.uuid(0)].Strikes[i].At = m.reg.cfg.Now().Add(-time.Hour)
		}
		m.reg.mu.Unlock()
		if strikes != lease+1 {
			t.Errorf("lease %d: %d strikes", lease, strikes)
		}
	}
	if got := m.Diagnosis.Health()[h.uuid(0)]; got.State != Suspect {
		t.Errorf("%+v", got)
	}
	m.Diagnosis.accuse(h.uuid(0), XidEvidence(74)) // of the GPU itself, and the first of its kind
	if got := m.Diagnosis.Health()[h.uuid(0)]; got.State != Suspect {
		t.Errorf("%+v", got)
	}
}

// The driver's packages are upgraded while its module stays loaded: the probe goes on with the library that it has in
// memory, and the inventory says that nothing new can start.
func TestDriverReplacedUnderTheAgent(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	libs, proc := t.TempDir(), t.TempDir()
	install := func(version string) {
		t.Helper()
		file, link := "libnvidia-ml.so."+version, filepath.Join(libs, "libnvidia-ml.so.1")
		if err := fakeprofile.BuildLibrary(filepath.Join(libs, file)); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(link)
		if err := os.Symlink(file, link); err != nil {
			t.Fatal(err)
		}
	}
	install("550.90.07")
	if err := os.MkdirAll(filepath.Join(proc, "driver/nvidia"), 0o755); err != nil {
		t.Fatal(err)
	}
	says := "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build\nGCC version: gcc 12.2.0\n"
	if err := os.WriteFile(filepath.Join(proc, "driver/nvidia/version"), []byte(says), 0o644); err != nil {
		t.Fatal(err)
	}
	m := h.start(t, func(c *Config) {
		c.LibraryPath, c.ProcFS = filepath.Join(libs, "libnvidia-ml.so.1"), proc
	})
	if p := inventory(t, m).Problems; len(p) != 0 {
		t.Fatalf("%+v", p)
	}
	install("570.133.20")
	if err := os.Remove(filepath.Join(libs, "libnvidia-ml.so.550.90.07")); err != nil {
		t.Fatal(err)
	}
	if err := fakeprofile.Change(h.path, func(p *fakeprofile.Profile) error {
		p.InitError = wire.CodeMismatch // of every process from now on
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	inv := inventory(t, m)
	if len(inv.Problems) != 1 || inv.Problems[0].Code != "driver_mismatch" || inv.Problems[0].Severity != "bad" ||
		!strings.Contains(inv.Problems[0].Evidence, "550.90.07") || !strings.Contains(inv.Problems[0].Evidence,
		"570.133.20") {
		t.Errorf("%+v", inv.Problems)
	}
	if inv.GPUs[0].Health != "healthy" { // what runs on it goes on
		t.Errorf("%+v", inv.GPUs[0])
	}
}

// The owner's MPS would be every renter's.
func TestMPS(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(proc, pipes string) error{
		"the folder": func(_, pipes string) error { return os.Mkdir(pipes, 0o755) },
		"the daemon": func(proc, _ string) error {
			if err := os.Mkdir(filepath.Join(proc, "77"), 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(proc, "77/comm"), []byte("nvidia-cuda-mps\n"), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proc, pipes := t.TempDir(), filepath.Join(t.TempDir(), "nvidia-mps")
			m := newHost(t, h100, 1).start(t, func(c *Config) { c.ProcFS, c.MPSPipes = proc, pipes })
			if p := inventory(t, m).Problems; len(p) != 0 {
				t.Fatalf("%+v", p)
			}
			if err := set(proc, pipes); err != nil {
				t.Fatal(err)
			}
			if p := inventory(t, m).Problems; len(p) != 1 || p[0].Code != "mps_running" || p[0].Severity != "bad" {
				t.Errorf("%+v", p)
			}
		})
	}
}

// A GPU that was split after the server had looked is not started on.
func TestSplitGPUIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	h := newHost(t, "NVIDIA A100-SXM4-80GB", 2)
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.MIG = 1 })
	m := h.start(t)
	becomes(t, m, h.uuid(1), Healthy)
	used := m.Owners.InUse(t.Context(), h.uuid(0), h.uuid(1))
	if len(used) != 1 || !strings.Contains(used[h.uuid(1)], "MIG") {
		t.Errorf("%v", used)
	}
}

// A GPU whose driver asks for a reset is due for one once nothing has it, and after an attempt not again for an hour.
func TestResetDue(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 3)
	var ahead atomic.Int64
	m := h.start(t, func(c *Config) {
		c.smi = fakeprofile.SMI(h.path)
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	becomes(t, m, h.uuid(1), Healthy)
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.RecoveryAction = wire.RecoverReset })
	h.fault(t, 2, func(g *fakeprofile.GPU) { g.RecoveryAction = wire.RecoverReboot })
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.RecoveryAction = wire.RecoverDrainP2P }) // its lease has ended
	becomes(t, m, h.uuid(0), Suspect)
	becomes(t, m, h.uuid(1), Quarantined)
	becomes(t, m, h.uuid(2), Quarantined)
	eventually(t, "the driver's action is known", func() (any, bool) { // it is noted after the state
		m.reg.mu.Lock()
		defer m.reg.mu.Unlock()
		return nil, m.reg.mem.GPUs[h.uuid(0)].wantsReset && m.reg.mem.GPUs[h.uuid(1)].wantsReset
	})
	if due := m.Resets.Due(); due != nil {
		t.Errorf("%v before it is known which GPUs have a lease", due)
	}
	m.Owners.LeasedBy(func() map[string]bool { return map[string]bool{h.uuid(1): true} })
	if due := m.Resets.Due(); !slices.Equal(due, []string{h.uuid(0)}) {
		t.Errorf("%v under a lease of the other", due)
	}
	if err := m.Resets.Requalify(t.Context(), h.uuid(0)); err != nil {
		t.Error(err)
	}
	m.Owners.LeasedBy(func() map[string]bool { return nil })
	if due := m.Resets.Due(); !slices.Equal(due, []string{h.uuid(1)}) {
		t.Errorf("due: %v", due)
	}
	if due := m.Resets.Due(); due != nil {
		t.Errorf("%v again at once", due)
	}
	ahead.Store(int64(resetAgain))
	if due := m.Resets.Due(); len(due) != 1 {
		t.Errorf("%v after an hour", due)
	}
	if err := m.Resets.Requalify(t.Context(), h.uuid(1)); err != nil {
		t.Fatal(err)
	}
	ahead.Store(3 * int64(resetAgain))
	if due := m.Resets.Due(); due != nil {
		t.Errorf("%v after the reset", due)
	}
}

// A quarantine ends without a reboot: the agent's own probe, which would keep the GPU from being reset, lets go of it.
// A GPU that has a lease is left alone.
func TestRequalifyResets(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	m := h.start(t, func(c *Config) {
		c.smi = fakeprofile.SMI(h.path)
	})
	becomes(t, m, h.uuid(1), Healthy)
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.RecoveryAction = wire.RecoverReset })
	becomes(t, m, h.uuid(1), Quarantined)
	if _, err := fakeprofile.SMI(h.path)(t.Context(), "-pm", "0", "-i", h.uuid(1)); err != nil {
		t.Fatal(err)
	}
	if err := fakeprofile.Reset(h.path, h.uuid(1)); err == nil {
		t.Fatal("a GPU was reset that the probe has open")
	}
	if err := m.Resets.Requalify(t.Context(), h.uuid(1)); !fault.Is(err, fault.Unavailable) {
		t.Errorf("before it is known which GPUs have a lease: %v", err)
	}
	leased := map[string]bool{h.uuid(1): true}
	m.Owners.LeasedBy(func() map[string]bool { return maps.Clone(leased) })
	if err := m.Resets.Requalify(t.Context(), h.uuid(1)); !fault.Is(err, fault.Conflict) {
		t.Errorf("a GPU with a lease: %v", err)
	}
	m.Owners.LeasedBy(func() map[string]bool { return nil })
	if err := m.Resets.Requalify(t.Context(), h.uuid(1)); err != nil {
		t.Fatal(err)
	}
	if got := m.Diagnosis.Health()[h.uuid(1)]; got.State != Healthy {
		t.Errorf("%+v", got)
	}
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.ECCUncorrectable = 1 }) // contained: a reset makes it fit again
	becomes(t, m, h.uuid(0), Suspect)
	if err := m.Resets.Requalify(t.Context(), h.uuid(0)); err != nil {
		t.Fatal(err)
	}
}
