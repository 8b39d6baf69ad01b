package gpu

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/machine/gpucheck"
)

// sent is a check in which two GPUs sent to each other.
func sent(a string, gbpsA float64, b string, gbpsB float64) gpucheck.Result {
	return gpucheck.Result{GPUs: []gpucheck.GPU{{UUID: a, Next: b, RingGbps: gbpsA}, {UUID: b, Next: a, RingGbps: gbpsB}}}
}

// What GPUs send over NVLink counts only from a check of all of them, for 30 days, also after a restart of the agent.
func TestRingsCountOfAllGPUsTogether(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	a, b := h.uuid(0), h.uuid(1)
	began := time.Now().Truncate(time.Millisecond)
	var later atomic.Int64 // time.Duration
	clock := func(c *Config) { c.Now = func() time.Time { return began.Add(time.Duration(later.Load())) } }
	m := h.start(t, clock)
	m.Owners.LeasedBy(noLeases)
	becomes(t, m, a, Healthy)
	becomes(t, m, b, Healthy)
	expect := func(m *Monitor, when string, gbpsA, gbpsB float64, at time.Duration) {
		t.Helper()
		want := [2]int64{began.Add(at).UnixMilli(), began.Add(at).UnixMilli()}
		if gbpsA == 0 {
			want = [2]int64{}
		}
		g := inventory(t, m).GPUs
		if got, atMS := [2]float64{g[0].RingGbps, g[1].RingGbps}, [2]int64{g[0].RingAtMS, g[1].RingAtMS}; got !=
			[2]float64{gbpsA, gbpsB} || atMS != want {
			t.Errorf("%s: %v at %v, want %v, %v at %v", when, got, atMS, gbpsA, gbpsB, want)
		}
	}
	expect(m, "at first", 0, 0, 0)
	m.Checks.Record(sent(a, 2900, b, 2900), a)
	expect(m, "of one only", 0, 0, 0)
	m.Checks.Record(sent(a, 2981.47, b, 2400), a, b)
	expect(m, "of both", 2981.4, 2400, 0)
	later.Store(int64(time.Hour))
	m.Checks.Record(gpucheck.Result{Failure: &gpucheck.Failure{Kind: gpucheck.KindHang, GPUs: []string{b}}}, a, b)
	m.Checks.Record(gpucheck.Result{}, b)
	expect(m, "after a failure, and of one again", 2981.4, 2400, 0)
	m.Close()

	m = h.start(t, clock)
	m.Owners.LeasedBy(noLeases)
	becomes(t, m, a, Healthy)
	becomes(t, m, b, Healthy)
	expect(m, "after a restart", 2981.4, 2400, 0)
	due := func() []string {
		inventory(t, m)
		due := m.Checks.Due()
		slices.Sort(due)
		return due
	}
	both := []string{a, b}
	slices.Sort(both)
	if got := due(); len(got) != 0 {
		t.Errorf("due after an hour: %v", got)
	}
	later.Store(int64(time.Hour + ringEvery))
	m.Owners.LeasedBy(func() map[string]bool { return map[string]bool{a: true} })
	if got := due(); len(got) != 0 {
		t.Errorf("due while one has a lease: %v", got)
	}
	m.Owners.LeasedBy(noLeases)
	if got := due(); !slices.Equal(got, both) {
		t.Errorf("due after a week: %v", got)
	}
	m.Checks.Record(gpucheck.Result{Failure: &gpucheck.Failure{Kind: gpucheck.KindCUDA, GPUs: both}}, a, b)
	if got := due(); len(got) != 0 {
		t.Errorf("due at once after a failure: %v", got)
	}
	later.Store(int64(ringFor + time.Minute))
	expect(m, "after 30 days", 0, 0, 0)
	m.Checks.Record(sent(a, 2900, b, 2950), a, b)
	expect(m, "again", 2900, 2950, ringFor+time.Minute)
	m.Checks.Record(gpucheck.Result{}, a, b) // without direct access between them
	expect(m, "without a ring", 0, 0, 0)
}

// What was sent over PCIe, which direct access may use too, is no figure of NVLink, and GPUs without NVLink are not
// checked for one.
func TestRingsOverPCIeAreNotNVLinks(t *testing.T) {
	t.Parallel()
	h := newHost(t, h100, 2)
	for i := range 2 {
		h.fault(t, i, func(g *fakeprofile.GPU) { g.NVLinks = 0 })
	}
	var later atomic.Int64
	m := h.start(t, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) } })
	m.Owners.LeasedBy(noLeases)
	becomes(t, m, h.uuid(0), Healthy)
	becomes(t, m, h.uuid(1), Healthy)
	m.Checks.Record(sent(h.uuid(0), 190, h.uuid(1), 190), h.uuid(0), h.uuid(1))
	if g := inventory(t, m).GPUs; g[0].RingGbps != 0 || g[1].RingGbps != 0 {
		t.Errorf("%v, %v", g[0].RingGbps, g[1].RingGbps)
	}
	later.Store(int64(2 * ringEvery))
	if due := m.Checks.Due(); len(due) != 0 {
		t.Errorf("due: %v", due)
	}
}
