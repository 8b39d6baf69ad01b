//go:build device

package realgpu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/machine/hostmem"
)

// The tests share the one GPU, so they run one after another. MUSTER_GPU_BIN is the folder of muster-agent and gpuload.
func program(name string) string { return filepath.Join(os.Getenv("MUSTER_GPU_BIN"), name) }

func monitor(t *testing.T) (*gpu.Monitor, string) {
	t.Helper()
	m, err := gpu.Start(t.Context(), gpu.Config{
		Exe:      []string{program("muster-agent"), "probe"},
		StateDir: t.TempDir(),
		Logger:   slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	inv, err := m.Inventory(t.Context())
	if err != nil || len(inv.GPUs) == 0 {
		t.Fatalf("%d GPUs: %v, %+v", len(inv.GPUs), err, inv.Problems)
	}
	for _, p := range inv.Problems {
		t.Logf("problem %s: %s", p.Code, p.Cause)
	}
	return m, inv.GPUs[0].UUID
}

// load starts gpuload and waits until it has said that it is ready.
func load(t *testing.T, args ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(program("gpuload"), args...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("gpuload %v: %q", args, lines.Text())
	}
	return cmd, lines
}

// sound fails the test if the GPU is not healthy, or if anything counts against it.
func sound(t *testing.T, m *gpu.Monitor, uuid string) {
	t.Helper()
	if h := m.Diagnosis.Health()[uuid]; h.State != gpu.Healthy {
		t.Errorf("health: %+v", h)
	}
	for _, e := range m.Diagnosis.Pending() {
		if e.Kind == "xid" && e.State == string(gpu.Healthy) {
			t.Logf("noted: %+v", e)
			continue
		}
		t.Errorf("evidence: %+v", e)
	}
}

// sample prints how long a sample takes, and the last one.
func sample(t *testing.T, m *gpu.Monitor, uuid, when string) {
	t.Helper()
	var took []time.Duration
	var last gpu.Batch
	for range 100 {
		began := time.Now()
		b, err := m.Telemetry.Sample(t.Context(), uuid)
		if err != nil {
			t.Fatal(err)
		}
		took, last = append(took, time.Since(began)), b
	}
	slices.Sort(took)
	text, err := json.Marshal(last.Samples[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: a sample takes %v (median), %v (longest of 100): %s", when, took[50], took[99], text)
}

func TestIdle(t *testing.T) {
	m, uuid := monitor(t)
	sample(t, m, uuid, "idle")
	if used := m.Owners.InUse(t.Context(), uuid); len(used) != 0 {
		t.Errorf("in use: %v", used)
	}
	before, err := m.Telemetry.EnergyMJ(t.Context(), uuid)
	if err != nil {
		t.Fatal(err)
	}
	began, cpu := time.Now(), children(t)
	time.Sleep(25 * time.Second) // two looks of the watch at least
	after, err := m.Telemetry.EnergyMJ(t.Context(), uuid)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("idle: %.1f W by the energy counter; the probe took %.2f %% of a core",
		float64(after[uuid]-before[uuid])/1000/time.Since(began).Seconds(),
		100*(children(t)-cpu).Seconds()/time.Since(began).Seconds())
	sound(t, m, uuid)
}

func TestBusy(t *testing.T) {
	m, uuid := monitor(t)
	cmd, _ := load(t, "busy", "25")
	time.Sleep(3 * time.Second)
	sample(t, m, uuid, "busy")
	use, err := m.Leases.UseOf(t.Context(), uuid)
	if err != nil || !slices.ContainsFunc(use.Processes, func(p gpu.Process) bool { return p.PID == cmd.Process.Pid }) {
		t.Errorf("the process %d is not among %+v: %v", cmd.Process.Pid, use, err)
	}
	t.Logf("in use: %v", m.Owners.InUse(t.Context(), uuid))
	before, _ := m.Telemetry.EnergyMJ(t.Context(), uuid)
	began, cpu := time.Now(), children(t)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	after, _ := m.Telemetry.EnergyMJ(t.Context(), uuid)
	t.Logf("busy: %.1f W by the energy counter; the probe took %.2f %% of a core",
		float64(after[uuid]-before[uuid])/1000/time.Since(began).Seconds(),
		100*(children(t)-cpu).Seconds()/time.Since(began).Seconds())
	sound(t, m, uuid)
}

// A workload that is killed leaves no process and no memory on the GPU; how long that takes is what WaitClean waits.
func TestKilledWorkload(t *testing.T) {
	m, uuid := monitor(t)
	for _, gib := range []string{"1", "100"} {
		if err := m.Leases.NoteBefore(t.Context(), uuid); err != nil {
			t.Fatal(err)
		}
		idle, err := m.Leases.UseOf(t.Context(), uuid)
		if err != nil {
			t.Fatal(err)
		}
		cmd, _ := load(t, "hold", gib)
		held, err := m.Leases.UseOf(t.Context(), uuid)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s GiB: idle %+v, held %+v", gib, idle, held)
		began := time.Now()
		_ = cmd.Process.Kill()
		var noProcess, noMemory time.Duration
		for noProcess == 0 || noMemory == 0 {
			u, err := m.Leases.UseOf(t.Context(), uuid)
			if err != nil {
				t.Fatal(err)
			}
			if noProcess == 0 && len(u.Processes) <= len(idle.Processes) {
				noProcess = time.Since(began)
			}
			if noMemory == 0 && u.MemUsed <= idle.MemUsed+64<<20 {
				noMemory = time.Since(began)
			}
			if time.Since(began) > 30*time.Second {
				t.Fatalf("still there: %+v", u)
			}
			time.Sleep(2 * time.Millisecond)
		}
		_ = cmd.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if err := m.Leases.WaitClean(ctx, uuid); err != nil {
			t.Error(err)
		}
		cancel()
		t.Logf("%s GiB: no process after %v, no memory after %v, clean after %v", gib, noProcess, noMemory,
			time.Since(began))
	}
	sound(t, m, uuid)
}

// What a renter's program can do to itself is no evidence against the GPU.
func TestFaultsOfAProgram(t *testing.T) {
	m, uuid := monitor(t)
	log, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Log("the kernel's log is not readable:", err)
	} else {
		defer log.Close()
		if _, err := log.Seek(0, 2); err != nil {
			t.Fatal(err)
		}
	}
	for _, mode := range []string{"store", "trap", "endless"} {
		cmd, lines := load(t, mode)
		if mode == "endless" {
			time.Sleep(2 * time.Second)
			_ = cmd.Process.Kill()
		}
		for lines.Scan() {
			t.Logf("%s: %s", mode, lines.Text())
		}
		began := time.Now()
		t.Logf("%s: ended with %v", mode, cmd.Wait())
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if err := m.Leases.WaitClean(ctx, uuid); err != nil {
			t.Error(err)
		}
		cancel()
		t.Logf("%s: clean after %v", mode, time.Since(began))
		time.Sleep(3 * time.Second)
		if log != nil {
			kernelLines(t, log, mode)
		}
		if out, err := exec.Command(program("muster-agent"), "gpucheck", "--work", "200ms").Output(); err != nil ||
			strings.Contains(string(out), `"failure"`) {
			t.Errorf("%s: the check afterwards: %v: %s", mode, err, out)
		}
	}
	sound(t, m, uuid)
}

func kernelLines(t *testing.T, log *os.File, mode string) {
	t.Helper()
	raw, err := log.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 8192)
	for {
		var n int
		var failed error
		_ = raw.Control(func(fd uintptr) { n, failed = syscall.Read(int(fd), buf) })
		if errors.Is(failed, syscall.EPIPE) {
			continue
		}
		if failed != nil || n <= 0 {
			return
		}
		if line := string(buf[:n]); strings.Contains(line, "NVRM") {
			t.Logf("%s: kernel: %q", mode, line)
		}
	}
}

// Memory that a program pins is either its own, which its control group limits, or mapped from the driver's control
// device, where package hostmem counts it.
func TestPinnedMemory(t *testing.T) {
	host := hostmem.Reader{}
	before, err := host.Host()
	if err != nil {
		t.Fatal(err)
	}
	cmd, _ := load(t, "pin", "8")
	after, err := host.Host()
	if err != nil {
		t.Fatal(err)
	}
	maps, err1 := os.ReadFile(fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid))
	status, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int64{}
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		from, to, _ := strings.Cut(f[0], "-")
		a, err1 := strconv.ParseUint(from, 16, 64)
		b, err2 := strconv.ParseUint(to, 16, 64)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if b-a >= 64<<20 {
			t.Logf("%d MiB: %s", (b-a)>>20, line)
		}
		if len(f) > 5 {
			sizes[f[5]] += int64(b - a)
		}
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "Rss") || strings.HasPrefix(line, "VmPin") {
			t.Log(line)
		}
	}
	t.Logf("available: %d MiB before, %d MiB with 8 GiB pinned", before.Available>>20, after.Available>>20)
	if sizes["/dev/nvidiactl"] < 8<<30 && sizes["/dev/zero"] < 8<<30 {
		t.Errorf("8 GiB pinned are neither mappings of /dev/nvidiactl nor the program's own memory: %v", sizes)
	}
}

// children returns the processor time of this process's children.
func children(t *testing.T) time.Duration {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var ticks int64
	for _, list := range lists {
		pids, err := os.ReadFile(list)
		if err != nil {
			continue
		}
		for pid := range strings.FieldsSeq(string(pids)) {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			comm, err2 := os.ReadFile("/proc/" + pid + "/comm")
			if err != nil || err2 != nil || !strings.HasPrefix(string(comm), "muster-agent") {
				continue
			}
			f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
			user, _ := strconv.ParseInt(f[11], 10, 64)
			system, _ := strconv.ParseInt(f[12], 10, 64)
			ticks += user + system
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100
}
