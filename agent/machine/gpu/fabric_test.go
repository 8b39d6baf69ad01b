package gpu

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

var fabricFaults = map[string]struct {
	change func(*fakeprofile.GPU)
	state  State
}{
	"not started": {func(g *fakeprofile.GPU) { g.FabricState = wire.FabricNotStarted }, Suspect},
	"in progress": {func(g *fakeprofile.GPU) { g.FabricState = wire.FabricInProgress }, Suspect},
	"failed":      {func(g *fakeprofile.GPU) { g.FabricStatus = wire.CodeUnknown }, Quarantined},
}

// Without the registration with the NVSwitches, NVML finds nothing wrong with a GPU, and CUDA does not start. If others
// are registered it is that GPU's trouble alone, which ends with the registration; the host is rented on.
func TestFabric_OfOneGPUIsItsOwn(t *testing.T) {
	t.Parallel()
	for name, test := range fabricFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, h100, 2)
			m := h.start(t)
			becomes(t, m, h.uuid(1), Healthy)
			h.fault(t, 1, test.change)
			if got := becomes(t, m, h.uuid(1), test.state); !strings.Contains(got.Reason, "802") {
				t.Errorf("%+v", got)
			}
			if inv := inventory(t, m); len(inv.Problems) != 0 || inv.GPUs[0].Health != "healthy" {
				t.Errorf("%+v", inv)
			}
			h.fault(t, 1, func(g *fakeprofile.GPU) { g.ClearFaults() })
			becomes(t, m, h.uuid(1), Healthy)
		})
	}
}

// None of the GPUs is registered: the host is not rented until the fabric manager has done that, and the inventory is
// sent again as soon as it has, and again when the registration is lost.
func TestFabric_OfAllGPUsIsTheHosts(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	all := func(change func(*fakeprofile.GPU)) {
		t.Helper()
		h.fault(t, 0, change)
		h.fault(t, 1, change)
	}
	all(fabricFaults["in progress"].change)
	m := h.start(t)
	m.Owners.LeasedBy(noLeases)
	problems := func() []agentapi.Problem { return inventory(t, m).Problems }
	if p := problems(); len(p) != 1 || p[0].Code != "fabric_not_ready" || p[0].Severity != "bad" ||
		!strings.Contains(p[0].Cause, "GPU 0, 1") || !strings.Contains(p[0].Evidence, "in progress") {
		t.Errorf("%+v", p)
	}
	if due := m.Checks.Due(); due != nil {
		t.Errorf("due for a check that must fail: %v", due)
	}
	for _, step := range []struct {
		change   func(*fakeprofile.GPU)
		problems int
	}{
		{func(g *fakeprofile.GPU) { g.FabricState = wire.FabricCompleted }, 0},
		{fabricFaults["not started"].change, 1},
		{fabricFaults["failed"].change, 1},
		{func(g *fakeprofile.GPU) { g.ClearFaults() }, 0},
	} {
		all(step.change)
		for p := problems(); len(p) != step.problems; p = problems() {
			<-m.Diagnosis.Changed() // without which the inventory is an hour old
		}
	}
	if due := m.Checks.Due(); len(due) != 2 {
		t.Errorf("due for a check: %v", due)
	}
}

// A GPU that needs a reset for another reason, too, is not healthy when it is registered.
func TestFabric_DoesNotHideAnotherQuarantine(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	m := h.start(t)
	becomes(t, m, h.uuid(1), Healthy)
	h.fault(t, 1, fabricFaults["failed"].change)
	becomes(t, m, h.uuid(1), Quarantined)
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.RaiseXid(95) })
	eventually(t, "the Xid", func() (any, bool) {
		got := m.Diagnosis.Health()[h.uuid(1)]
		return got, strings.Contains(got.Reason, "Xid 95")
	})
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.ClearFaults() })
	inventory(t, m)
	inventory(t, m)
	if got := m.Diagnosis.Health()[h.uuid(1)]; got.State != Quarantined {
		t.Errorf("%+v", got)
	}
}
