package gpu

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/machine/gpucheck"
)

// A GPU that failed its check is suspect across restarts of the agent, until a check passes; the others are not.
func TestChecked(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	now := time.Now()
	m := h.start(t, func(c *Config) { c.Now = func() time.Time { return now } })
	m.Owners.LeasedBy(func() map[string]bool { return nil })
	becomes(t, m, h.uuid(0), Healthy)
	both := []string{h.uuid(0), h.uuid(1)}
	eventually(t, "both due", func() (any, bool) {
		due := m.Checks.Due()
		return due, len(due) == 2
	})
	m.Checks.Record(gpucheck.Result{GPUs: []gpucheck.GPU{{UUID: h.uuid(0), Watchdog: true}}}, both...)
	if due := m.Checks.Due(); len(due) != 0 {
		t.Errorf("due after a check: %v", due)
	}
	inv := inventory(t, m)
	if p := inv.Problems; len(p) != 1 || p[0].Code != "display_watchdog" {
		t.Errorf("a display's watchdog: %+v", p)
	}
	if g := inv.GPUs; !g[0].Display || g[1].Display {
		t.Errorf("GPUs that drive a display: %t, %t", g[0].Display, g[1].Display)
	}
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.Display = 1 }) // since the check
	if inv := inventory(t, m); !inv.GPUs[0].Display || !inv.GPUs[1].Display || len(inv.Problems) != 2 {
		t.Errorf("a display that NVML reports: %+v", inv)
	}
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.Display = 0 })
	m.Checks.Record(gpucheck.Result{Failure: &gpucheck.Failure{Kind: gpucheck.KindCUDA, GPUs: []string{h.uuid(1)},
		Code: 802, Text: "not ready"}}, both...)
	if got := becomes(t, m, h.uuid(1), Suspect); !strings.Contains(got.Reason, "not ready") {
		t.Errorf("%+v", got)
	}
	if got := m.Diagnosis.Health()[h.uuid(0)]; got.State != Healthy {
		t.Errorf("the other one: %+v", got)
	}
	if due := m.Checks.Due(); len(due) != 0 {
		t.Errorf("due at once after a failure: %v", due)
	}
	m.Close()

	now = now.Add(recheck)
	m = h.start(t, func(c *Config) { c.Now = func() time.Time { return now } })
	m.Owners.LeasedBy(func() map[string]bool { return nil })
	becomes(t, m, h.uuid(1), Suspect)
	eventually(t, "due again", func() (any, bool) {
		due := m.Checks.Due()
		return due, slices.Equal(due, []string{h.uuid(1)})
	})
	m.Owners.LeasedBy(func() map[string]bool { return map[string]bool{h.uuid(1): true} })
	if due := m.Checks.Due(); len(due) != 0 {
		t.Errorf("due with a lease: %v", due)
	}
	m.Checks.Record(gpucheck.Result{}, both...)
	becomes(t, m, h.uuid(1), Healthy)
}
