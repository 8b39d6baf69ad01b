package placement

import (
	"math/rand/v2"
	"testing"

	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/fleet/market/demand"
)

func tiny() ([]Machine, []demand.Request) {
	var machines []Machine
	for i := range 12 {
		machines = append(machines, Machine{
			Name:  string(rune('a' + i)),
			Model: []string{"A", "B"}[i%2],
			CPU:   32_000,
			Mem:   1 << 20,
			GPUs:  4,
		})
	}
	return machines, []demand.Request{
		{
			CPU:   4000,
			GPUs:  1,
			Milli: 1000,
		}, {
			CPU:   4000,
			GPUs:  1,
			Milli: 400,
		}, {CPU: 16_000, GPUs: 2, Milli: 1000}, {CPU: 2000, GPUs: 1, Milli: 600, Models: "A"},
		{CPU: 3000}, {CPU: 32_000, GPUs: 4, Milli: 1000, Models: "A|B"},
	}
}

func TestEveryPolicyFillsWithinTheFleet(t *testing.T) {
	t.Parallel()
	machines, requests := tiny()
	arrivals := Arrivals(requests, machines, 1)
	var asked int64
	for i := range arrivals {
		asked += arrivals[i].GPU()
	}
	if asked < capacity(machines) {
		t.Fatalf("%d asked of %d", asked, capacity(machines))
	}
	for _, p := range policies {
		if percent := fill(machines, arrivals, p.make(machines, requests)); percent < 50 || percent > 100 {
			t.Errorf("%s: %.1f %%", p.name, percent)
		}
	}
}

func TestFragmentIsWhatTheNextRequestCannotUse(t *testing.T) {
	t.Parallel()
	g := newFGD([]demand.Request{{CPU: 4, GPUs: 1, Milli: 1000}, {CPU: 4, GPUs: 1, Milli: 500}})
	for _, c := range []struct {
		cpu  int64
		left []int64
		want float64
	}{
		{8, []int64{1000, 1000}, 0},
		{8, []int64{1000, 300}, 300}, // too small a part for either
		{8, []int64{600}, 300},       // of use to every second
		{2, []int64{1000}, 1000},     // no processors
	} {
		if got := g.fragment(demand.NewState("A", c.cpu, 0, c.left)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestWhatEndsIsFreeAgain(t *testing.T) {
	t.Parallel()
	machines, requests := tiny()
	random := rand.New(rand.NewPCG(1, 1))
	r := &running{snapshot: newSnapshot(machines, 2, random)}
	for range 300 {
		a, ok := requestOf(&requests[random.IntN(len(requests))])
		if !ok {
			continue
		}
		if p, _ := market.Place(r.snapshot, a); len(p.Nodes) > 0 {
			r.add(p)
		}
		for r.gpus > 40 {
			r.end(random)
		}
	}
	for len(r.placed) > 0 {
		r.end(random)
	}
	if r.gpus != 0 {
		t.Errorf("%d GPUs are still counted", r.gpus)
	}
	a, _ := requestOf(&requests[5])
	for range 24 {
		p, _ := market.Place(r.snapshot, a)
		if len(p.Nodes) == 0 {
			t.Fatal("the fleet is not whole again")
		}
		r.add(p)
	}
}
