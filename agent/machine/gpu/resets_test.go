package gpu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/internal/fault"
)

// The reset turns persistence mode off first, and on again in the end where it was on, whatever happens meanwhile.
func TestReset_LiftsPersistenceMode(t *testing.T) {
	t.Parallel()
	const query, off, reset, on = "--query-gpu=persistence_mode --format=csv,noheader -i GPU-1", "-pm 0 -i GPU-1",
		"--gpu-reset -i GPU-1", "-pm 1 -i GPU-1"
	refused := errors.New("In use by another client")
	for name, test := range map[string]struct {
		mode    string
		fails   map[string]error
		want    []string
		wantErr string
	}{
		"on":               {"Enabled\n", nil, []string{query, off, reset, on}, ""},
		"off":              {"Disabled\n", nil, []string{query, reset}, ""},
		"no such mode":     {"[N/A]\n", nil, []string{query, reset}, ""},
		"not known":        {"", nil, []string{query, off, reset, on}, ""},
		"cannot be known":  {"", map[string]error{query: refused, off: refused}, []string{query, off, reset}, ""},
		"reset refused":    {"Enabled\n", map[string]error{reset: refused}, []string{query, off, reset, on}, "In use"},
		"cannot be lifted": {"Enabled\n", map[string]error{off: refused}, []string{query, off, reset, on}, ""},
		"stays off":        {"Enabled\n", map[string]error{on: refused}, []string{query, off, reset, on}, "-pm 1 -i GPU-1"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		err := resetBy(ctx, func(ctx context.Context, args ...string) (string, error) {
			line := strings.Join(args, " ")
			got = append(got, line)
			if line == reset {
				cancel() // the time for it is up
			} else if ctx.Err() != nil {
				t.Errorf("%s: %s with a context that is done", name, line)
			}
			return test.mode, test.fails[line]
		}, "GPU-1")
		cancel()
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
		if (err == nil) != (test.wantErr == "") || err != nil && !strings.Contains(err.Error(), test.wantErr) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An agent that ends within a reset leaves persistence mode off: the next one turns it on again.
func TestReset_EndedByAKillKeepsPersistenceMode(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 1)
	smi := func(c *Config) { c.smi, c.timing.watch = fakeprofile.SMI(h.path), time.Hour }
	m := h.start(t, smi)
	becomes(t, m, h.uuid(0), Healthy)
	m.reg.looking.Lock() // the look that saw it is over, and there is no other
	m.reg.lift(h.uuid(0), true)
	m.reg.looking.Unlock()
	m.Close()
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.Persistence = 0 })
	h.start(t, smi)
	eventually(t, "on again", func() (any, bool) {
		p, err := fakeprofile.Load(h.path)
		return err, err == nil && p.GPUs[0].Persistence == 1
	})
}

// Without a stand-in, a reset runs the program nvidia-smi, in the order that persistence mode needs.
func TestReset_RunsNvidiaSMI(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\ncase \"$*\" in\n*'-pm 0'*) touch " + dir + "/off ;;\n*gpu-reset*) [ -e " + dir +
		"/off ] || { echo 'In use by another client'; exit 255; } ;;\nesac\n"
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if err := resetGPU(t.Context(), "GPU-1"); err != nil {
		t.Error(err)
	}
}

// A GPU that was reset is offered again only when its NVSwitches know it and it has passed a check; the others are
// looked at all the while.
func TestRequalify_WaitsForFabricAndCheck(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.FabricSettles = 5 })
	m := h.start(t, func(c *Config) { c.smi, c.timing.poll = fakeprofile.SMI(h.path), 5*time.Millisecond })
	becomes(t, m, h.uuid(1), Healthy)
	m.Owners.LeasedBy(noLeases)
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.RaiseXid(95) })
	becomes(t, m, h.uuid(1), Quarantined)
	failure := &gpucheck.Failure{Kind: gpucheck.KindCUDA, GPUs: []string{h.uuid(1)}, Code: 802, Text: "not ready"}
	checks := 0
	m.Resets.CheckedBy(func(_ context.Context, uuid string) error {
		checks++
		inventory(t, m) // a look meanwhile judges nothing
		m.reg.mu.Lock()
		fabric := m.reg.fabrics[uuid]
		m.reg.mu.Unlock()
		if uuid != h.uuid(1) || m.Diagnosis.Health()[uuid].State == Healthy || !fabric.Ready() {
			t.Errorf("%s was checked while it is %+v, %+v", uuid, m.Diagnosis.Health()[uuid], fabric)
		}
		if slices.Contains(m.Checks.Due(), uuid) {
			t.Error("due for a check while it is checked")
		}
		m.Checks.Record(gpucheck.Result{Failure: failure}, uuid)
		return nil
	})
	if err := m.Resets.Requalify(t.Context(), h.uuid(1)); !fault.Is(err, fault.Conflict) ||
		!strings.Contains(err.Error(), "not ready") {
		t.Errorf("a check that fails: %v", err)
	}
	if got := becomes(t, m, h.uuid(1), Suspect); !strings.Contains(got.Reason, "not ready") {
		t.Errorf("%+v", got)
	}
	failure = nil
	if err := m.Resets.Requalify(t.Context(), h.uuid(1)); err != nil || checks != 2 {
		t.Errorf("%v, %d checks", err, checks)
	}
	if got := m.Diagnosis.Health()[h.uuid(1)]; got.State != Healthy {
		t.Errorf("%+v", got)
	}
	p, err := fakeprofile.Load(h.path)
	if err != nil || p.GPUs[1].Persistence != 1 {
		t.Errorf("persistence mode is %d, %v", p.GPUs[1].Persistence, err)
	}

	// The check cannot be run: the GPU is due for one, and not offered before.
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.RaiseXid(95) })
	becomes(t, m, h.uuid(1), Quarantined)
	m.Resets.CheckedBy(func(context.Context, string) error { return errors.New("no Docker") })
	if err := m.Resets.Requalify(t.Context(), h.uuid(1)); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	if got := m.Diagnosis.Health()[h.uuid(1)]; got.State != Suspect {
		t.Errorf("%+v", got)
	}
	eventually(t, "due for a check", func() (any, bool) {
		due := m.Checks.Due()
		return due, slices.Contains(due, h.uuid(1))
	})
	m.Checks.Record(gpucheck.Result{}, h.uuid(1))
	becomes(t, m, h.uuid(1), Healthy)
}

// A registration that takes longer than the wait leaves the GPU suspect, and its completion ends that.
func TestRequalify_LateFabric(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.FabricSettles = 9999 })
	m := h.start(t, func(c *Config) {
		c.smi, c.timing.poll, c.timing.settle = fakeprofile.SMI(h.path), time.Millisecond, 20*time.Millisecond
	})
	becomes(t, m, h.uuid(1), Healthy)
	m.Owners.LeasedBy(noLeases)
	m.Resets.CheckedBy(func(_ context.Context, uuid string) error {
		t.Errorf("%s is checked without its registration", uuid)
		return nil
	})
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.RaiseXid(95) })
	becomes(t, m, h.uuid(1), Quarantined)
	if err := m.Resets.Requalify(t.Context(), h.uuid(1)); !fault.Is(err, fault.Conflict) ||
		!strings.Contains(err.Error(), "in progress") {
		t.Errorf("%v", err)
	}
	if got := m.Diagnosis.Health()[h.uuid(1)]; got.State != Suspect {
		t.Errorf("%+v", got)
	}
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.FabricWait = 0 })
	eventually(t, "due for a check", func() (any, bool) {
		due := m.Checks.Due()
		return due, slices.Contains(due, h.uuid(1))
	})
	m.Checks.Record(gpucheck.Result{}, h.uuid(1))
	becomes(t, m, h.uuid(1), Healthy)
}

// Memory errors that were contained keep new leases off a GPU until it was reset, which is done as soon as it is free.
// A GPU that cannot be reset works on, and its offer says what it has.
func TestContainedErrors_AreNotForGood(t *testing.T) {
	t.Parallel()
	one, none := uint64(1), wire.RecoverNone
	v, now := Verdict{State: Healthy}, time.Now()
	for range 14 * 24 * 60 {
		v, _, _ = v.Look(ConditionEvidence(wire.Condition{ECCUncorrectable: &one, RecoveryAction: &none}), false, "b", now,
			10*time.Minute)
		now = now.Add(time.Minute)
	}
	if v.State != Healthy {
		t.Errorf("after two weeks: %s, %s", v.State, v.Reason)
	}

	h := newHost(t, h100, 2)
	m := h.start(t, func(c *Config) { c.smi = fakeprofile.SMI(h.path) })
	becomes(t, m, h.uuid(1), Healthy)
	m.Owners.LeasedBy(func() map[string]bool { return map[string]bool{h.uuid(0): true} })
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.ECCUncorrectable = 1 })
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.ECCUncorrectable, g.RemapPending = 1, 1 })
	becomes(t, m, h.uuid(0), Suspect)
	becomes(t, m, h.uuid(1), Suspect)
	var due []string
	eventually(t, "due", func() (any, bool) { due = m.Resets.Due(); return due, len(due) > 0 })
	if !slices.Equal(due, []string{h.uuid(1)}) {
		t.Errorf("due: %v", due)
	}
	if err := m.Resets.Requalify(t.Context(), h.uuid(1)); err != nil {
		t.Error(err)
	}

	coherent := newHost(t, "NVIDIA GH200 480GB", 1)
	m = coherent.start(t, func(c *Config) { c.smi = fakeprofile.SMI(coherent.path) })
	becomes(t, m, coherent.uuid(0), Healthy)
	m.Owners.LeasedBy(noLeases)
	coherent.fault(t, 0, func(g *fakeprofile.GPU) { g.ECCUncorrectable = 1 })
	eventually(t, "degraded", func() (any, bool) {
		e := m.Diagnosis.Pending()
		return e, len(e) == 1 && e[0].Kind == kindDegraded && e[0].State == "healthy"
	})
	coherent.fault(t, 0, func(g *fakeprofile.GPU) { g.RemapPending = 1 })
	becomes(t, m, coherent.uuid(0), Suspect)
	if due := m.Resets.Due(); due != nil {
		t.Errorf("due: %v", due)
	}
	if err := m.Resets.Requalify(t.Context(), coherent.uuid(0)); !fault.Is(err, fault.Conflict) ||
		!strings.Contains(err.Error(), "reboot the host") {
		t.Errorf("%v", err)
	}
}

// A reset that is refused, because something else has the GPU open, is not waited for: the GPU works on.
func TestContainedErrors_ResetRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 1)
	now := time.Now()
	m := h.start(t, func(c *Config) {
		c.Reset = func(context.Context, string) error { return errors.New("In use by another client") }
		c.timing.recovers = time.Millisecond
		c.Now = func() time.Time { now = now.Add(time.Millisecond); return now }
	})
	becomes(t, m, h.uuid(0), Healthy)
	m.Owners.LeasedBy(noLeases)
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.ECCUncorrectable = 1 })
	becomes(t, m, h.uuid(0), Suspect)
	if err := m.Resets.Requalify(t.Context(), h.uuid(0)); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	becomes(t, m, h.uuid(0), Healthy)
}
