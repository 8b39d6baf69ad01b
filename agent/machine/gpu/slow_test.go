package gpu

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// A sample has what decides how fast a GPU is, through the real child.
func TestSampleTellsClocksAndLinks(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 1)
	m := h.start(t)
	becomes(t, m, h.uuid(0), Healthy)
	h.fault(t, 0, func(g *fakeprofile.GPU) {
		g.Load, g.ClocksReasons, g.PCIeWidthNow, g.PCIeReplays, g.NVLinkErrors = 90, wire.ClocksHWThermalSlowdown|
			wire.ClocksHWSlowdown, 8, 17, 1<<40
		g.Fans = 2
	})
	b, err := m.Telemetry.Sample(t.Context(), h.uuid(0))
	if err != nil {
		t.Fatal(err)
	}
	whole := func(n int) *int { return &n }
	replays, errors := int64(17), int64(1<<40)
	want := wire.Sample{
		Clocks: []string{"hw_slowdown", "hw_thermal_slowdown"}, SMMHz: whole(990), MemMHz: whole(2619),
		PCIeGen: whole(5), PCIeWidth: whole(8), PCIeGenMax: whole(5), PCIeWidthMax: whole(16),
		PCIeReplays: &replays, NVLinkErrors: &errors,
	}
	got := b.Samples[0]
	if got.Fan == nil || *got.Fan < 70 || *got.Fan > 80 { // the fake's load wavers, and its fans follow
		t.Errorf("fans: %v", got.Fan)
	}
	got.Fan = nil
	got.GPU, got.Util, got.MemUsed, got.MemTotal, got.PowerMW, got.TempC, got.EnergyMJ = "", nil, nil, nil, nil, nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Drivers before R535 name the reasons otherwise, and count no NVLink errors.
func TestSampleOfAnOldDriver(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 1)
	m := h.start(t, func(c *Config) { c.LibraryPath = oldLibrary })
	becomes(t, m, h.uuid(0), Healthy)
	b, err := m.Telemetry.Sample(t.Context(), h.uuid(0))
	if err != nil {
		t.Fatal(err)
	}
	if s := b.Samples[0]; !slices.Equal(s.Clocks, []string{"gpu_idle"}) || s.NVLinkErrors != nil {
		t.Errorf("%+v", s)
	}
}

func TestDegradedIsToldAndEnds(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 1)
	quick := func(c *Config) { c.timing.slow, c.timing.steady = time.Nanosecond, time.Nanosecond }
	m := h.start(t, quick)
	becomes(t, m, h.uuid(0), Healthy)
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.Load, g.ClocksReasons = 90, wire.ClocksHWPowerBrake|wire.ClocksHWSlowdown })
	last := func(kind, detail string) {
		t.Helper()
		eventually(t, kind, func() (any, bool) {
			events := m.Diagnosis.Pending()
			return events, slices.ContainsFunc(events, func(e agentapi.HealthEvent) bool {
				return e.Kind == kind && e.Detail == detail && e.State == string(Healthy)
			})
		})
	}
	last(kindDegraded, "HW power brake")
	if got := m.Diagnosis.Health()[h.uuid(0)]; got.State != Healthy {
		t.Errorf("a slow GPU is %+v: it goes on being rented", got)
	}
	m.Close()
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.ClocksReasons = 0 })
	m = h.start(t, quick)
	last(kindRestored, "")
}

// A GPU with fewer NVLinks than it should have, or whose switches report a defect, is degraded.
func TestDegradedNVLinks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*fakeprofile.GPU)
		want   string
	}{
		"links down": {func(g *fakeprofile.GPU) { g.NVLinksDown = 2 }, "16 of 18 NVLinks up"},
		"half the bandwidth, and a route": {func(g *fakeprofile.GPU) {
			g.FabricHealth = wire.FabricYes<<wire.FabricDegraded | wire.FabricYes<<wire.FabricUnhealthy
		}, "NVSwitch fabric: degraded bandwidth, an unhealthy route"},
		"wrong configuration": {func(g *fakeprofile.GPU) { g.FabricHealth = 5 << wire.FabricConfiguration },
			"NVSwitch fabric: incorrect configuration (5)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, h100, 1)
			h.fault(t, 0, test.change) // before the agent starts
			m := h.start(t, func(c *Config) { c.timing.slow, c.timing.steady = time.Nanosecond, time.Minute })
			eventually(t, test.want, func() (any, bool) {
				events := m.Diagnosis.Pending()
				return events, slices.ContainsFunc(events, func(e agentapi.HealthEvent) bool {
					return e.Kind == kindDegraded && e.Detail == test.want && e.State == string(Healthy)
				})
			})
		})
	}
}

// A bridge joins some of two cards' NVLinks: only links that worked before count as down.
func TestLinksThatNeverWorkedAreNotDown(t *testing.T) {
	t.Parallel()
	now, n := time.Now(), func(v int) *int { return &v }
	var s slow
	look := func(up int) string {
		for range 7 {
			s.see(wire.Sample{}, nvlinks{up: n(up)}, now, 10*time.Minute)
			now = now.Add(10 * time.Second)
		}
		return s.why(time.Minute)
	}
	if why := look(4); why != "" {
		t.Errorf("a bridge with four of twelve links: %q", why)
	}
	if why := look(3); why != "3 of 4 NVLinks up" {
		t.Errorf("%q", why)
	}
}

func TestSlowRules(t *testing.T) {
	t.Parallel()
	n := func(v int) *int { return &v }
	link := func(util, width, gen int) wire.Sample {
		return wire.Sample{Util: n(util), PCIeWidth: n(width), PCIeWidthMax: n(16), PCIeGen: n(gen), PCIeGenMax: n(5)}
	}
	clocks := func(reasons uint64) wire.Sample { return wire.Sample{Clocks: wire.ClocksReasons(reasons)} }
	errors := func(count int64) wire.Sample { return wire.Sample{NVLinkErrors: &count} }
	replays := func(count int64) wire.Sample { return wire.Sample{PCIeReplays: &count} }
	repeat := func(s wire.Sample, times int) (out []wire.Sample) {
		for range times {
			out = append(out, s)
		}
		return out
	}
	hot := clocks(wire.ClocksHWThermalSlowdown | wire.ClocksHWSlowdown)
	for name, test := range map[string]struct {
		looks []wire.Sample // ten seconds apart
		want  string
	}{
		"for a minute":             {repeat(hot, 7), "HW thermal slowdown"},
		"not yet for a minute":     {repeat(hot, 6), ""},
		"once, and a minute later": {slices.Concat(repeat(hot, 1), repeat(clocks(0), 6), repeat(hot, 1)), ""},
		"ten minutes ago":          {slices.Concat(repeat(hot, 7), repeat(clocks(0), 60)), ""},
		"five minutes ago":         {slices.Concat(repeat(hot, 7), repeat(clocks(0), 30)), "HW thermal slowdown"},
		"slowdown of no kind":      {repeat(clocks(wire.ClocksHWSlowdown), 7), "HW slowdown"},
		"a power limit":            {repeat(clocks(wire.ClocksSWPowerCap|wire.ClocksApplications), 60), ""},
		"narrow link":              {repeat(link(90, 8, 5), 7), "PCIe link x8 of x16 under load"},
		"slow link":                {repeat(link(90, 16, 3), 7), "PCIe generation 3 of 5 under load"},
		"slow link of an idle GPU": {repeat(link(0, 16, 1), 60), ""},
		"narrow, then idle": {slices.Concat(repeat(link(90, 8, 5), 7), repeat(link(0, 8, 1), 100)),
			"PCIe link x8 of x16 under load"},
		"narrow, then wide":     {slices.Concat(repeat(link(90, 8, 5), 7), repeat(link(90, 16, 5), 1)), ""},
		"errors that rose once": {slices.Concat(repeat(errors(0), 5), repeat(errors(9), 60)), ""},
		"errors that rise": {[]wire.Sample{errors(0), errors(1), errors(2), errors(3), errors(4), errors(5), errors(6),
			errors(7)}, "NVLink errors rise"},
		"packets sent again": {[]wire.Sample{replays(0), replays(2), replays(4), replays(6), replays(8), replays(10),
			replays(12), replays(14)}, "PCIe errors: packets are sent again"},
		"packets sent again now and then": {[]wire.Sample{replays(0), replays(1), replays(2), replays(3), replays(4),
			replays(5), replays(6), replays(7)}, ""},
		"a counter that was reset": {[]wire.Sample{errors(90), errors(0)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s slow
			now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
			for _, look := range test.looks {
				s.see(look, nvlinks{}, now, 10*time.Minute)
				now = now.Add(10 * time.Second)
			}
			if got := s.why(time.Minute); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
