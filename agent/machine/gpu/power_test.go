package gpu

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/internal/agentapi"
)

// The operator's power limit is set, set again after another program changes it, shown next to the default, and removed
// when it is no longer wanted. A limit that cannot be set is reported.
func TestPowerLimit(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 3)
	limits := func(l PowerLimits) func(*Config) {
		return func(c *Config) { c.PowerLimits, c.timing.watch = l, time.Hour }
	}
	watts := func(m *Monitor) (out [3]int64, problems []string) {
		inv := inventory(t, m)
		for i, g := range inv.GPUs {
			if out[i] = g.PowerLimitMW.Or(0) / 1000; g.PowerDefaultMW.Or(0) != 700_000 {
				t.Errorf("made for %d mW", g.PowerDefaultMW.Or(0))
			}
		}
		for _, p := range inv.Problems {
			problems = append(problems, p.Code+": "+p.Cause+" "+p.Evidence)
		}
		return out, problems
	}
	m := h.start(t, limits(PowerLimits{"": 500, "1": 250, h.uuid(2): 100}))
	becomes(t, m, h.uuid(2), Healthy)
	got, problems := watts(m)
	if got != [3]int64{500, 250, 700} || len(problems) != 1 ||
		!strings.Contains(problems[0], "GPU 2's power limit could not be set to 100 W") ||
		!strings.Contains(problems[0], "from 200 to 700 W") {
		t.Errorf("%v, %q", got, problems)
	}
	m.Close()
	// None is wanted any more, and at first it cannot be given back.
	h.fault(t, 1, func(g *fakeprofile.GPU) {
		g.Errors = append(g.Errors, fakeprofile.Error{Function: "nvmlDeviceSetPowerManagementLimit", Code: 4})
	})
	m = h.start(t, limits(nil))
	got, problems = watts(m)
	if got != [3]int64{700, 250, 700} || len(problems) != 1 ||
		!strings.Contains(problems[0], "GPU 1 could not be given back") ||
		!strings.Contains(problems[0], "Insufficient Permissions") {
		t.Errorf("%v, %q", got, problems)
	}
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.ClearFaults() })
	if got, problems = watts(m); got != [3]int64{700, 700, 700} || len(problems) != 0 {
		t.Errorf("%v, %q", got, problems)
	}
	if m.Diagnosis.Health()[h.uuid(1)].State != Healthy {
		t.Errorf("%+v", m.Diagnosis.Health())
	}
}

// A limit by index stays with the card at that place when another is lost and the driver counts again.
func TestPowerLimit_ByIndexStaysWithItsCard(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 3)
	limits := PowerLimits{"0": 300, "1": 400, "": 500}
	start := func() *Monitor {
		return h.start(t, func(c *Config) { c.PowerLimits, c.timing.watch = limits, time.Hour })
	}
	watts := func(m *Monitor) (out []int64) {
		for _, g := range inventory(t, m).GPUs {
			out = append(out, g.PowerLimitMW.Or(0)/1000)
		}
		return out
	}
	m := start()
	if got := watts(m); !slices.Equal(got, []int64{300, 400, 500}) {
		t.Errorf("%v", got)
	}
	m.Close()
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.Absent = 1 })
	m = start()
	of := func(m *Monitor, i int) int64 {
		watts(m) // what it reports comes after what it sets
		gpus := inventory(t, m).GPUs
		at := slices.IndexFunc(gpus, func(g agentapi.GPU) bool { return g.UUID == h.uuid(i) })
		return gpus[at].PowerLimitMW.Or(0) / 1000
	}
	if one, two := of(m, 1), of(m, 2); one != 400 || two != 500 {
		t.Errorf("%d and %d W", one, two)
	}
	m.Close()
	limits = PowerLimits{"0": 250, "": 500} // by an operator who sees two cards
	m = start()
	if one, two := of(m, 1), of(m, 2); one != 250 || two != 500 {
		t.Errorf("with new limits: %d and %d W", one, two)
	}
}

// When the agent goes for good the limits go with it: those that it set, and once.
func TestPowerIsGivenBackWhenTheAgentGoes(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 3)
	m := h.start(t, func(c *Config) { c.PowerLimits, c.timing.watch = PowerLimits{"0": 500, "1": 250}, time.Hour })
	becomes(t, m, h.uuid(1), Healthy)
	inventory(t, m)
	m.Close()
	limits := func() (out [3]int64) {
		m := h.start(t, func(c *Config) { c.StateDir = "" }) // only looks
		defer m.Close()
		for i, g := range inventory(t, m).GPUs {
			out[i] = g.PowerLimitMW.Or(0) / 1000
		}
		return out
	}
	if got := limits(); got != [3]int64{500, 250, 700} {
		t.Fatalf("set: %v", got)
	}
	h.fault(t, 1, func(g *fakeprofile.GPU) {
		g.Errors = append(g.Errors, fakeprofile.Error{Function: "nvmlDeviceSetPowerManagementLimit", Code: 4})
	})
	if err := GivePowerBack(t.Context(), h.config(t)); err == nil ||
		!strings.Contains(err.Error(), "GPU 1 keeps its power limit of 250 W") || strings.Contains(err.Error(), "GPU 0") {
		t.Errorf("one that refuses: %v", err)
	}
	h.fault(t, 1, func(g *fakeprofile.GPU) { g.ClearFaults() })
	if got := limits(); got != [3]int64{700, 250, 700} {
		t.Errorf("but for the one that refuses: %v", got)
	}
	if err := GivePowerBack(t.Context(), h.config(t)); err != nil {
		t.Error(err)
	}
	if got := limits(); got != [3]int64{700, 700, 700} {
		t.Errorf("given back: %v", got)
	}
	// Nothing is left to give: the driver is not asked any more.
	broken := h.config(t)
	broken.Exe = []string{"/nonexistent"}
	if err := GivePowerBack(t.Context(), broken); err != nil {
		t.Error(err)
	}
}

func TestParsePowerLimits(t *testing.T) {
	t.Parallel()
	if l, err := ParsePowerLimits([]string{"300", "0=250", "GPU-1=200"}); err != nil || l[""] != 300 || l["0"] != 250 ||
		l["GPU-1"] != 200 {
		t.Errorf("%v, %v", l, err)
	}
	for _, bad := range [][]string{{"x"}, {"0"}, {"-5"}, {"0=250", "0=260"}, {"a=3"}, {"=300"}, {"300", "250"}} {
		if l, err := ParsePowerLimits(bad); err == nil {
			t.Errorf("%q: %v", bad, l)
		}
	}
}
