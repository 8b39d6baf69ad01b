package gpu

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/internal/fault"
)

// The energy counter is the integral of the power, goes on over a restart of the probe, and restarts with the driver.
func TestEnergy(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 1)
	clock := func(ms, load int64) {
		t.Helper()
		h.ClockMS, h.GPUs[0].Load = ms, load
		if err := h.Save(h.path); err != nil {
			t.Fatal(err)
		}
	}
	clock(1_000_000, 0)
	m := h.start(t, func(c *Config) { c.timing.watch = time.Hour })
	energy := func() int64 {
		t.Helper()
		e, err := m.Telemetry.EnergyMJ(t.Context(), h.uuid(0))
		if err != nil {
			t.Fatal(err)
		}
		return e[h.uuid(0)]
	}
	before := energy()
	clock(1_010_000, 0)
	if used := energy() - before; used != 70*10*1000 { // 70 W idle for 10 s
		t.Errorf("idle: %d mJ", used)
	}
	m.Close()
	m = h.start(t, func(c *Config) { c.timing.watch = time.Hour })
	before = energy()
	clock(1_010_000, 90)
	clock(1_070_000, 90)
	used := energy() - before
	if watts := used / 60 / 1000; watts < 590 || watts > 690 { // about 90 % between 70 and 700 W for a minute
		t.Errorf("busy: %d W on average", watts)
	}
	b, err := m.Telemetry.Sample(t.Context(), h.uuid(0))
	if s := b.Samples[0]; err != nil || *s.Util < 80 || *s.PowerMW < 590_000 || *s.TempC < 55 || *s.MemTotal != 81559<<20 {
		t.Errorf("busy: %+v", s)
	}
	before = energy()
	if err := fakeprofile.ResetEnergy(h.path); err != nil {
		t.Fatal(err)
	}
	if after := energy(); after >= before {
		t.Errorf("the counter went from %d to %d over a reset", before, after)
	}
	before = energy()
	clock(1_080_000, 0)
	if used := energy() - before; used != 70*10*1000 {
		t.Errorf("after a reset: %d mJ", used)
	}
}

func TestWaitClean(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	proc := t.TempDir()
	m := h.start(t, func(c *Config) { c.ProcFS = proc })
	becomes(t, m, h.uuid(0), Healthy)
	job := exec.Command("sleep", "1000")
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = job.Process.Kill() }()
	desktop := os.Getpid()
	within := func(group string) {
		t.Helper()
		dir := filepath.Join(proc, strconv.Itoa(job.Process.Pid))
		if err := errors.Join(os.MkdirAll(dir, 0o755),
			os.WriteFile(filepath.Join(dir, "cgroup"), []byte("0::"+group+"\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	within("/system.slice/docker-" + strings.Repeat("3f2a", 16) + ".scope")
	processes := map[string][]fakeprofile.Process{h.uuid(0): {{PID: desktop, MemMB: 900}}}
	set := func() {
		t.Helper()
		if err := fakeprofile.SetProcesses(h.path, processes); err != nil {
			t.Fatal(err)
		}
	}
	set()
	if err := m.Leases.NoteBefore(t.Context(), h.uuid(0), h.uuid(1)); err != nil {
		t.Fatal(err)
	}
	if err := m.Leases.WaitClean(t.Context(), h.uuid(0), h.uuid(1)); err != nil {
		t.Errorf("what was there before counts: %v", err)
	}
	processes[h.uuid(0)] = append(processes[h.uuid(0)], fakeprofile.Process{PID: job.Process.Pid, MemMB: 40_000, Load: 95})
	set()
	use, err := m.Leases.UseOf(t.Context(), h.uuid(0))
	if err != nil || len(use.Processes) != 2 || use.MemUsed < 40_900<<20 {
		t.Errorf("%+v, %v", use, err)
	}
	b, err := m.Telemetry.Sample(t.Context(), h.uuid(0))
	if err != nil || *b.Samples[0].Util < 85 {
		t.Errorf("a busy GPU: %+v, %v", b, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := m.Leases.WaitClean(short, h.uuid(0)); !fault.Is(err, fault.Conflict) {
		t.Errorf("held: %v", err)
	}
	// A login screen that came back is no user's, and not the renter's either: it is in no container.
	within("/system.slice/sddm.service")
	if err := m.Leases.WaitClean(t.Context(), h.uuid(0)); err != nil {
		t.Errorf("a program of the host's own: %v", err)
	}
	within("/system.slice/docker-" + strings.Repeat("3f2a", 16) + ".scope")
	cleaned := make(chan error)
	go func() { cleaned <- m.Leases.WaitClean(t.Context(), h.uuid(0), h.uuid(1)) }()
	_ = job.Process.Kill()
	_ = job.Wait()
	if err := <-cleaned; err != nil {
		t.Error(err)
	}
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.StuckMiB = 2048 })
	short, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := m.Leases.WaitClean(short, h.uuid(1)); !fault.Is(err, fault.Conflict) {
		t.Errorf("stuck memory: %v", err)
	}
}
