package gpu

import (
	"context"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// A GPU's PCIe link is known once it was seen under load, as fast as it was then, and for as long as the host runs.
func TestLinksAreMeasuredUnderLoad(t *testing.T) {
	t.Parallel()
	h := newHost(t, "NVIDIA L40S", 2) // its link slows down when it idles
	m := h.start(t)
	becomes(t, m, h.uuid(0), Healthy)
	becomes(t, m, h.uuid(1), Healthy)
	measured := func(m *Monitor, i int) [2]int {
		g := inventory(t, m).GPUs[i]
		return [2]int{g.PCIeGenLoaded, g.PCIeWidthLoaded}
	}
	for range 2 * linkLooks {
		if got := measured(m, 0); got != [2]int{} { // each inventory is a look
			t.Fatalf("an idle GPU's link: %v", got)
		}
	}
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.Load, g.PCIeGenNow, g.PCIeWidthNow = 90, 3, 8 })
	for range linkLooks {
		inventory(t, m)
	}
	if got := measured(m, 0); got != [2]int{3, 8} {
		t.Errorf("under load: %v", got)
	}
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.Load = 0 })
	if got := measured(m, 0); got != [2]int{3, 8} {
		t.Errorf("idle again: %v", got)
	}
	m.Close()
	m = h.start(t)
	becomes(t, m, h.uuid(0), Healthy)
	if got := measured(m, 0); got != [2]int{3, 8} {
		t.Errorf("after a restart of the agent: %v", got)
	}
	if got := measured(m, 1); got != [2]int{} {
		t.Errorf("the other one: %v", got)
	}
}

// A check is short: the links are looked at while it computes.
func TestLinksAreWatchedDuringACheck(t *testing.T) {
	t.Parallel()
	h := newHost(t, "NVIDIA L40S", 1)
	m := h.start(t, func(c *Config) { c.timing.watch = time.Hour })
	becomes(t, m, h.uuid(0), Healthy)
	h.fault(t, 0, func(g *fakeprofile.GPU) { g.Load = 100 })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Telemetry.WatchLinks(ctx, h.uuid(0))
	}()
	eventually(t, "measured", func() (any, bool) {
		m.reg.mu.Lock()
		defer m.reg.mu.Unlock()
		l := m.reg.mem.GPUs[h.uuid(0)].Link
		return l, l == loadedLink{Boot: m.reg.boot, Looks: linkLooks, Gen: 4, Width: 16}
	})
	cancel()
	<-done
}

func TestLoadedLink(t *testing.T) {
	t.Parallel()
	type look struct{ util, gen int }
	for name, c := range map[string]struct {
		looks []look
		boot  string
		want  int
	}{
		"idle":                      {[]look{{0, 1}, {0, 1}, {0, 1}, {49, 1}}, "a", 0},
		"two looks":                 {[]look{{90, 4}, {90, 4}}, "a", 0},
		"as fast as it became":      {[]look{{90, 1}, {90, 3}, {90, 4}, {0, 1}, {90, 3}}, "a", 4},
		"of the boot before":        {[]look{{90, 4}, {90, 4}, {90, 4}}, "b", 0},
		"idle looks do not count":   {[]look{{90, 4}, {0, 1}, {90, 4}, {0, 1}}, "a", 0},
		"and do not slow it either": {[]look{{90, 4}, {0, 1}, {90, 4}, {0, 1}, {90, 4}}, "a", 4},
	} {
		var l loadedLink
		width := 16
		for _, s := range c.looks {
			l.see(wire.Sample{Util: &s.util, PCIeGen: &s.gen, PCIeWidth: &width}, "a")
		}
		if got, _ := l.measured(c.boot); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
