package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

func TestFaultsQuarantine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault func(*fakeprofile.GPU)
		state State
		kind  string
	}{
		"xid 79":           {func(g *fakeprofile.GPU) { g.RaiseXid(79) }, Quarantined, kindXid},
		"xid 79, and gone": {func(g *fakeprofile.GPU) { g.RaiseXid(79); g.Lost = 1 }, Quarantined, kindXid},
		"xid 74":           {func(g *fakeprofile.GPU) { g.RaiseXid(74) }, Suspect, kindXid},
		"lost":             {func(g *fakeprofile.GPU) { g.Lost = 1 }, Quarantined, kindLost},
		"vanished":         {func(g *fakeprofile.GPU) { g.Absent = 1 }, Quarantined, kindLost},
		"uncorrectable ECC, older driver": {func(g *fakeprofile.GPU) { g.ECCUncorrectable, g.RecoveryAction = 2, -1 },
			Quarantined, kindECC},
		"contained ECC":   {func(g *fakeprofile.GPU) { g.ECCUncorrectable = 2 }, Suspect, kindECC},
		"remap failed":    {func(g *fakeprofile.GPU) { g.RemapFailure = 1 }, Quarantined, kindRemap},
		"remap pending":   {func(g *fakeprofile.GPU) { g.RemapPending = 1 }, Suspect, kindRemap},
		"reset asked for": {func(g *fakeprofile.GPU) { g.RecoveryAction = 1 }, Quarantined, kindAction},
		"reset required": {func(g *fakeprofile.GPU) {
			g.Errors = []fakeprofile.Error{{Function: "nvmlDeviceGetPowerUsage", Code: 16}}
		}, Quarantined, kindAction},
		"unknown error": {func(g *fakeprofile.GPU) {
			g.Errors = []fakeprofile.Error{{Function: "nvmlDeviceGetPowerUsage", Code: 999}}
		}, Suspect, kindDriver},
		"unknown code": {func(g *fakeprofile.GPU) {
			g.Errors = []fakeprofile.Error{{Function: "nvmlDeviceGetMemoryInfo_v2", Code: 77}}
		}, Suspect, kindDriver},
		"three suspicions at once": {func(g *fakeprofile.GPU) { g.RaiseXid(74); g.RaiseXid(166); g.RaiseXid(169) },
			Suspect, kindXid},
		"a contained error and what follows from it": {func(g *fakeprofile.GPU) {
			g.RaiseXid(94)
			g.ECCUncorrectable, g.RemapPending, g.RecoveryAction = 2, 1, wire.RecoverDrainAndReset
		}, Suspect, kindRemap},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, h100, 2)
			m := h.start(t)
			becomes(t, m, h.uuid(0), Healthy)
			becomes(t, m, h.uuid(1), Healthy)
			inventory(t, m) // a whole look: which calls the GPU answers is known then
			h.fault(t, 1, test.fault)
			got := becomes(t, m, h.uuid(1), test.state)
			if got.Reason == "" {
				t.Error("no reason")
			}
			eventually(t, "the event", func() (any, bool) {
				events := m.Diagnosis.Pending()
				return events, slices.ContainsFunc(events, func(e agentapi.HealthEvent) bool {
					return e.Kind == test.kind && e.GPU == h.uuid(1) && e.Seq > 0 && e.BootMS > 0 && e.Detail != ""
				})
			})
			if other := m.Diagnosis.Health()[h.uuid(0)]; other.State != Healthy {
				t.Errorf("the other GPU: %+v", other)
			}
			inv := inventory(t, m)
			if len(inv.GPUs) != 2 || inv.GPUs[1].UUID != h.uuid(1) || inv.GPUs[1].Health != string(test.state) ||
				inv.GPUs[1].HealthReason == "" {
				t.Errorf("inventory: %+v", inv.GPUs)
			}
		})
	}
}

func TestApplicationXidsAreNotTheGPUs(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 1)
	m := h.start(t)
	becomes(t, m, h.uuid(0), Healthy)
	h.fault(t, 0, func(g *fakeprofile.GPU) {
		for _, rule := range xids {
			if rule.Bucket == bucketIgnore || rule.Bucket == bucketNotice {
				g.RaiseXid(int64(rule.Xid))
			}
		}
		g.RaiseXid(74) // after them, in order
	})
	becomes(t, m, h.uuid(0), Suspect)
	if e := m.Diagnosis.Pending(); len(e) != 1 || e[0].Xid != 74 {
		t.Errorf("%+v", e)
	}
}

func TestQuarantineOutlivesRestarts(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	m := h.start(t)
	becomes(t, m, h.uuid(0), Healthy)
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.RaiseXid(79); g.Lost = 1 })
	becomes(t, m, h.uuid(0), Quarantined)
	m.Close()
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.ClearFaults() })

	m = h.start(t)
	becomes(t, m, h.uuid(1), Healthy)
	if got := m.Diagnosis.Health()[h.uuid(0)]; got.State != Quarantined {
		t.Fatalf("a restart made it %+v", got)
	}
	pending := m.Diagnosis.Pending()
	if len(pending) == 0 {
		t.Fatal("unacknowledged events were lost")
	}
	last := pending[len(pending)-1].Seq
	if err := m.Diagnosis.Ack(last); err != nil {
		t.Fatal(err)
	}
	m.Close()

	m = h.start(t)
	if n := len(m.Diagnosis.Pending()); n != 0 {
		t.Errorf("%d acknowledged events came back", n)
	}
	m.Owners.LeasedBy(noLeases)
	if err := m.Resets.Requalify(t.Context(), h.uuid(1)); !fault.Is(err, fault.Conflict) {
		t.Errorf("requalified a healthy GPU: %v", err)
	}
	if err := m.Resets.Requalify(t.Context(), h.uuid(0)); err != nil {
		t.Fatal(err)
	}
	events := m.Diagnosis.Pending()
	if m.Diagnosis.Health()[h.uuid(0)].State != Healthy || len(events) != 1 || events[0].Seq != last+1 ||
		events[0].Kind != kindRecovered || events[0].State != "healthy" {
		t.Errorf("%+v", events)
	}
}

func noLeases() map[string]bool { return nil }

func TestRequalifyChecks(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 1)
	var resets int
	m := h.start(t, func(c *Config) {
		c.Reset = func(_ context.Context, uuid string) error {
			resets++
			if uuid != h.uuid(0) || resets == 1 {
				return errors.New("in use by another client")
			}
			return nil
		}
	})
	becomes(t, m, h.uuid(0), Healthy)
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.RemapFailure = 1 })
	becomes(t, m, h.uuid(0), Quarantined)
	m.Owners.LeasedBy(noLeases)
	if err := m.Resets.Requalify(t.Context(), h.uuid(0)); !fault.Is(err, fault.Unavailable) {
		t.Errorf("reset refused: %v", err)
	}
	if err := m.Resets.Requalify(t.Context(), h.uuid(0)); !fault.Is(err, fault.Conflict) {
		t.Errorf("still broken: %v", err)
	}
	if err := m.Resets.Requalify(t.Context(), "GPU-none"); !fault.Is(err, fault.NotFound) {
		t.Errorf("unknown: %v", err)
	}
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.ClearFaults() })
	if err := m.Resets.Requalify(t.Context(), h.uuid(0)); err != nil {
		t.Error(err)
	}
}

// A GPU that hangs in the driver costs its own call only: the probe is replaced, the others answer, the sick one is
// left alone for a while and comes back.
func TestHang(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 3)
	// no looks of its own: every call here is the test's
	m := h.start(t, func(c *Config) { c.timing.watch, c.timing.call = time.Hour, 2*time.Second })
	becomes(t, m, h.uuid(2), Healthy)
	m.reg.looking.Lock() // the look that saw it is over, and there is no other
	defer m.reg.looking.Unlock()
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.Hang = "nvmlDeviceGetPowerUsage" })
	b, err := m.Telemetry.Sample(t.Context(), h.uuid(0), h.uuid(1), h.uuid(2))
	if err != nil || len(b.Samples) != 2 || b.Samples[0].GPU != h.uuid(0) || b.Samples[1].GPU != h.uuid(2) {
		t.Fatalf("%+v, %v", b, err)
	}
	if got := m.Diagnosis.Health()[h.uuid(1)]; got.State != Suspect {
		t.Errorf("%+v", got)
	}
	if e := m.Diagnosis.Pending(); len(e) != 1 || e[0].Kind != kindHang || e[0].GPU != h.uuid(1) {
		t.Errorf("%+v", e)
	}
	if _, err := m.Telemetry.Sample(t.Context(), h.uuid(0)); err != nil {
		t.Errorf("the other GPU after the restart: %v", err)
	}
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.Hang = "" })
	eventually(t, "asked again", func() (any, bool) {
		b, err := m.Telemetry.Sample(t.Context(), h.uuid(1))
		return err, err == nil && len(b.Samples) == 1
	})
	m.driver.probe.mu.Lock()
	defer m.driver.probe.mu.Unlock()
	if m.driver.probe.starts != 3 {
		t.Errorf("the probe was started %d times, want 3: it hung twice", m.driver.probe.starts)
	}
}

func TestProbeKilled(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	m := h.start(t)
	becomes(t, m, h.uuid(1), Healthy)
	for range 3 {
		m.driver.probe.mu.Lock()
		c := m.driver.probe.child
		m.driver.probe.mu.Unlock()
		if c != nil {
			_ = syscall.Kill(c.cmd.Process.Pid, syscall.SIGKILL)
			<-c.reaped
		}
		b, err := m.Telemetry.Sample(t.Context())
		if err != nil || len(b.Samples) != 2 {
			t.Fatalf("%+v, %v", b, err)
		}
	}
	// The new probe receives events, too.
	inventory(t, m)
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.RaiseXid(95) })
	becomes(t, m, h.uuid(0), Quarantined)
}

func TestProbeKilledByItsLibrary(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 1)
	m := h.start(t)
	becomes(t, m, h.uuid(0), Healthy)
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.Crash = "nvmlDeviceGetUtilizationRates" })
	if _, err := m.Telemetry.Sample(t.Context(), h.uuid(0)); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.Crash = "" })
	if _, err := m.Telemetry.Sample(t.Context(), h.uuid(0)); err != nil {
		t.Error(err)
	}
}

// Close does not wait for the end of a driver's hang, and no probe is left behind.
func TestCloseWhileHung(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 1)
	m := h.start(t, func(c *Config) { c.timing.call = time.Hour })
	becomes(t, m, h.uuid(0), Healthy)
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.Hang = "*" })
	m.driver.probe.mu.Lock()
	c := m.driver.probe.child
	m.driver.probe.mu.Unlock()
	m.Close()
	<-c.reaped
	if _, err := m.Telemetry.Sample(t.Context(), h.uuid(0)); err == nil {
		t.Error("a closed monitor answered")
	}
}

// A planned end of the probe is no kill, which may leave a driver in a bad state: the probe ends when its input does.
func TestPlannedEnd_IsNoKill(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 1)
	m := h.start(t, func(c *Config) { c.timing.watch = time.Hour })
	becomes(t, m, h.uuid(0), Healthy)
	m.reg.looking.Lock() // the look that saw it is over
	m.driver.probe.mu.Lock()
	c := m.driver.probe.child
	m.driver.probe.mu.Unlock()
	m.reg.looking.Unlock()
	release, err := m.driver.probe.pause(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release()
	if !c.cmd.ProcessState.Success() {
		t.Errorf("the probe ended with: %v", c.cmd.ProcessState)
	}
}

// What the kernel's log says counts once, also over restarts of the agent.
func TestKernelLog(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	fifo := filepath.Join(t.TempDir(), "kmsg")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	says := func(seq int, text string) { fmt.Fprintf(log, "4,%d,1000,-;%s\n", seq, text) }
	m := h.start(t, func(c *Config) { c.KernelLog = fifo })
	becomes(t, m, h.uuid(1), Healthy)
	says(7, "NVRM: Xid (PCI:0000:28:00): 31, pid=1, name=python, MMU Fault")
	says(8, "NVRM: GPU 0000:28:00.0: GPU has fallen off the bus.")
	if got := becomes(t, m, h.uuid(1), Quarantined); got.Reason == "" {
		t.Error("no reason")
	}
	events := m.Diagnosis.Pending()
	if len(events) != 1 || events[0].Kind != kindOffBus {
		t.Errorf("%+v", events)
	}
	m.Owners.LeasedBy(noLeases)
	if err := m.Resets.Requalify(t.Context(), h.uuid(1)); err != nil {
		t.Fatal(err)
	}
	m.Close()
	m = h.start(t, func(c *Config) { c.KernelLog = fifo })
	says(8, "NVRM: GPU 0000:28:00.0: GPU has fallen off the bus.")
	says(9, "NVRM: Xid (PCI:0000:17:00): 119, pid=1, Timeout waiting for RPC from GSP")
	becomes(t, m, h.uuid(0), Quarantined)
	if got := m.Diagnosis.Health()[h.uuid(1)]; got.State != Healthy {
		t.Errorf("an old line counted again: %+v", got)
	}
}

// The state survives as a file; one that cannot be read is not passed over.
func TestState(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 1)
	m := h.start(t)
	becomes(t, m, h.uuid(0), Healthy)
	m.Close()
	if err := os.WriteFile(filepath.Join(h.state, "gpu-health.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), h.config(t)); err == nil {
		t.Error("a torn state was passed over")
	}
}

// A GPU that a host had before it booted, and no longer has, is reported as a problem and not listed.
func TestMissingSinceBoot(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 1)
	s, mem, err := openStore(h.state)
	if err != nil {
		t.Fatal(err)
	}
	mem.GPUs["GPU-old"] = &record{
		Verdict: Verdict{State: Healthy, BootID: "before"},
		Seen:    "before",
		GPU:     agentapi.GPU{UUID: "GPU-old", Model: "NVIDIA A40", PCIBus: "00000000:01:00.0"},
	}
	mem.GPUs[h.uuid(0)] = &record{
		Verdict: Verdict{State: Quarantined, Kind: kindXid, Reason: "Xid 79", BootID: "before"},
		Seen:    "before",
	}
	if err := s.save(mem); err != nil {
		t.Fatal(err)
	}
	m := h.start(t)
	becomes(t, m, h.uuid(0), Healthy) // a boot is a reset, and it passed the check
	inv := inventory(t, m)
	if len(inv.GPUs) != 1 || len(inv.Problems) != 1 || inv.Problems[0].Code != "gpu_missing" {
		t.Errorf("%+v", inv)
	}
	m.Close()
	m = h.start(t, func(c *Config) { c.Ephemeral = true })
	becomes(t, m, h.uuid(0), Healthy)
	if inv := inventory(t, m); len(inv.GPUs) != 1 || len(inv.Problems) != 0 {
		t.Errorf("of a machine that may come back with other GPUs: %+v", inv)
	}
}
