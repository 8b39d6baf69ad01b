package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// newSplit is a host with a whole A100 and one in three slices.
func newSplit(t *testing.T) *host {
	t.Helper()
	machine, ok := fakeprofile.MachineNamed("a100-mig")
	if !ok {
		t.Fatal("no such machine")
	}
	p, err := machine.Profile(0)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Profile: p, path: filepath.Join(t.TempDir(), "profile"), state: t.TempDir()}
	if err := p.Save(h.path); err != nil {
		t.Fatal(err)
	}
	return h
}

// slice is the UUID of the i-th slice of the split GPU.
func (h *host) slice(i int) string { return h.GPUs[1].Instances[i].UUID }

// remade is what the library says of the i-th slice: what of it is destroyed, and how often it was recreated.
func (h *host) remade(t *testing.T, i int) string {
	t.Helper()
	b, err := os.ReadFile(h.path + ".mig-" + h.slice(i))
	if errors.Is(err, os.ErrNotExist) {
		return "0 0"
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (h *host) processes(t *testing.T, of map[string][]fakeprofile.Process) {
	t.Helper()
	if err := fakeprofile.SetProcesses(h.path, of); err != nil {
		t.Fatal(err)
	}
}

func TestSlicesAreListed(t *testing.T) {
	t.Parallel()
	h := newSplit(t)
	m := h.start(t)
	inv := inventory(t, m)
	var got []string
	for _, g := range inv.GPUs {
		if g.Kind == agentapi.KindSlice {
			got = append(got, fmt.Sprintf("%d %s %d %s %s %t", g.Index, g.Model, g.VRAMMB, g.AttachName, g.Parent,
				g.MIG.Or(false)))
		}
	}
	var want []string
	for i, is := range []string{
		"81 A100 80GB MIG 3g.40gb 40192", "82 A100 80GB MIG 2g.20gb 19968", "83 A100 80GB MIG 2g.20gb 19968",
	} {
		want = append(want, fmt.Sprintf("%s nvidia.com/gpu=%s %s false", is, h.slice(i), h.uuid(1)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(inv.GPUs) != 5 || len(inv.Topology) != 2 || len(inv.Problems) != 0 {
		t.Errorf("%d GPUs, topology %v, problems %+v", len(inv.GPUs), inv.Topology, inv.Problems)
	}
	b, err := m.Telemetry.Sample(t.Context(), h.slice(0))
	if err != nil || len(b.Samples) != 1 {
		t.Fatalf("%+v, %v", b, err)
	}
	if s := b.Samples[0]; s.Util != nil || s.PowerMW != nil || s.MemTotal == nil || *s.MemTotal != 40192<<20 {
		t.Errorf("%+v", s)
	}
	if nodes := m.DeviceNodes(h.slice(0)); len(nodes) != 3 || nodes[2] != "/dev/nvidia1" {
		t.Errorf("%v", nodes)
	}
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.Instances = nil })
	if inv := inventory(t, m); len(inv.GPUs) != 2 || len(inv.Problems) != 1 || inv.Problems[0].Code != "mig" {
		t.Errorf("after the layout was taken away: %d GPUs, %+v", len(inv.GPUs), inv.Problems)
	}
}

// After a lease its slice, and no other, is destroyed and recreated, once nothing runs on it any more.
func TestSlicesAreMadeAnewAfterALease(t *testing.T) {
	t.Parallel()
	h := newSplit(t)
	m := h.start(t)
	becomes(t, m, h.slice(1), Healthy)
	if err := m.Leases.NoteBefore(t.Context(), h.slice(1)); err != nil {
		t.Fatal(err)
	}
	h.processes(t, map[string][]fakeprofile.Process{h.slice(1): {{PID: os.Getpid(), MemMB: 3000}}})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := m.Leases.WaitClean(ctx, h.slice(1)); fault.From(err) == nil || h.remade(t, 1) != "0 0" {
		t.Fatalf("while a process runs: %v, %s", err, h.remade(t, 1))
	}
	h.processes(t, nil)
	for len(m.Diagnosis.Changed()) > 0 {
		<-m.Diagnosis.Changed()
	}
	if err := m.Leases.WaitClean(t.Context(), h.slice(1)); err != nil {
		t.Fatal(err)
	}
	if len(m.Diagnosis.Changed()) == 0 {
		t.Error("no inventory follows, so that the device nodes of the new slice are not looked at")
	}
	if got := []string{h.remade(t, 0), h.remade(t, 1), h.remade(t, 2)}; !cmp.Equal(got, []string{"0 0", "0 1", "0 0"}) {
		t.Errorf("%v", got)
	}
	becomes(t, m, h.slice(1), Healthy)
}

// An agent that ends between the two halves makes the slice when it starts again. Until then it is not healthy.
func TestASliceThatWasDestroyedIsMadeAtTheNextStart(t *testing.T) {
	t.Parallel()
	h := newSplit(t)
	m := h.start(t)
	becomes(t, m, h.slice(2), Healthy)
	h.fault(t, 1, func(g *fakeprofile.GPU) {
		g.Errors = []fakeprofile.Error{{Function: "nvmlDeviceCreateGpuInstanceWithPlacement", Code: 999}}
	})
	if err := m.Leases.WaitClean(t.Context(), h.slice(2)); err == nil || h.remade(t, 2) != "2 0" {
		t.Fatalf("%v, %s", err, h.remade(t, 2))
	}
	becomes(t, m, h.slice(2), Suspect)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.Errors = nil })
	m = h.start(t)
	becomes(t, m, h.slice(2), Healthy)
	if got := h.remade(t, 2); got != "0 1" {
		t.Error(got)
	}
}

// An Xid of a GPU instance is its slice's alone; one of the whole GPU, or a defect of it, is that of all its slices.
func TestSlicesHealthIsTheirGPUs(t *testing.T) {
	t.Parallel()
	h := newSplit(t)
	m := h.start(t)
	for i := range 3 {
		becomes(t, m, h.slice(i), Healthy)
	}
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.RaiseXidIn(2, 48) })
	becomes(t, m, h.slice(1), Quarantined)
	if health := m.Diagnosis.Health(); health[h.slice(0)].State != Healthy || health[h.uuid(1)].State != Healthy {
		t.Errorf("an Xid of the second slice: %v", health)
	}
	for _, e := range m.Diagnosis.Pending() {
		if e.GPU == h.slice(1) && (e.Vendor != agentapi.NVIDIA || e.Code != "xid-48") {
			t.Errorf("%+v", e)
		}
	}
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.RecoveryAction = wire.RecoverReset })
	for i := range 3 {
		becomes(t, m, h.slice(i), Quarantined)
	}
	m.Owners.LeasedBy(func() map[string]bool { return nil })
	if due := m.Resets.Due(); len(due) != 0 {
		t.Errorf("a reset would destroy the layout: %v", due)
	}
	if health := m.Diagnosis.Health()[h.uuid(0)]; health.State != Healthy {
		t.Errorf("the whole GPU: %v", health)
	}
	if err := m.Resets.Requalify(t.Context(), h.slice(1)); fault.From(err) == nil ||
		!strings.Contains(err.Error(), "slice") {
		t.Errorf("a slice was reset: %v", err)
	}
}

func TestKernelLinesNameGPUInstances(t *testing.T) {
	t.Parallel()
	l, ok := parseKernelLine("4,9,5,-;NVRM: Xid (PCI:0000:28:00 GPU-I:02): 48, pid=1, name=job")
	if !ok || l.Instance == nil || *l.Instance != 2 || l.Evidence.Xid != 48 {
		t.Errorf("%+v, %t", l, ok)
	}
}
