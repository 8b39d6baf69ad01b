package market

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// newHost makes a host of n free GPUs of one model.
func newHost(name, model string, n int, price money.Micro) *Host {
	h := &Host{
		ID:         id.New[id.Host](),
		Org:        id.New[id.Org](),
		Name:       name,
		Region:     "eu",
		MultiNode:  true,
		CPUCores:   8 * n,
		RAMMB:      int64(n) << 16,
		DiskFreeGB: 1000,
	}
	h.add(model, n, price)
	return h
}

func (h *Host) add(model string, n int, price money.Micro) {
	for range n {
		i := len(h.GPUs)
		h.GPUs = append(h.GPUs, HostGPU{
			GPU:    GPU{id.New[id.GPU](), fmt.Sprintf("GPU-%s-%d", h.Name, i), i},
			Model:  model,
			VRAMMB: 81559,
			Free:   true,
		})
	}
	h.Offers = append(h.Offers, HostOffer{
		ID:           id.New[id.Offer](),
		Model:        model,
		Price:        price,
		MinGPUs:      1,
		HostSharePPM: 850_000,
	})
}

// take marks the first n GPUs of the host as taken.
func (h *Host) taken(n int) *Host {
	for i := range n {
		h.GPUs[i].Free = false
	}
	return h
}

func snapshotOf(hosts ...*Host) *Snapshot {
	s := NewSnapshot(0)
	for _, h := range hosts {
		s.Put(h)
	}
	return s
}

func mustRequest(t testing.TB, change func(*Spec)) Request {
	t.Helper()
	s := DefaultSpec()
	s.Image = "busybox"
	change(&s)
	if err := s.Validate(true); err != nil {
		t.Fatal(err)
	}
	a, err := s.Request(id.Org{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func hostNames(s *Snapshot, p Placement) []string {
	var out []string
	for _, n := range p.Nodes {
		out = append(out, s.Host(n.Host).Name)
	}
	return out
}

func TestPlaceTakesTheCheapestDistinctHosts(t *testing.T) {
	t.Parallel()
	s := snapshotOf(newHost("dear", "NVIDIA H100 80GB HBM3", 8, 3_000_000), newHost("cheap", "NVIDIA H100 80GB HBM3", 8,
		2_000_000),
		newHost("middle", "NVIDIA H100 80GB HBM3", 8, 2_500_000), newHost("other", "NVIDIA A100", 8, 1_000_000))
	p, _ := Place(s, mustRequest(t, func(s *Spec) { s.Nodes, s.GPUsPerNode, s.GPU = 2, 4, "gpu_model=H100" }))
	if got := hostNames(s, p); !slices.Equal(got, []string{"cheap", "middle"}) || p.Rate != 18_000_000 {
		t.Fatalf("%v at %s", got, p.Rate)
	}
	n := p.Nodes[0]
	if n.CPUCores != 32 || n.RAMMB != s.Host(n.Host).sellableRAMMB()/2 || n.DiskGB != 10 || len(n.GPUs) != 4 ||
		n.Rate != 8_000_000 {
		t.Errorf("%+v", n)
	}
	var sum money.Micro
	for _, l := range p.Lines() {
		sum += l.Price
	}
	if sum != p.Rate {
		t.Errorf("lines add up to %s, the rate is %s", sum, p.Rate)
	}
}

func TestPlaceMixesModelsWhenTheQueryAllows(t *testing.T) {
	t.Parallel()
	s := snapshotOf(newHost("a", "NVIDIA H100", 2, 2_000_000), newHost("b", "NVIDIA A100", 2, 1_000_000))
	a := mustRequest(t, func(s *Spec) { s.Nodes, s.GPU = 2, "gpu_model in [H100,A100]" })
	if p, why := Place(s, a); len(p.Nodes) != 2 || p.Rate != 3_000_000 {
		t.Errorf("%+v %+v", p, why)
	}
}

func TestPlaceKeepsAFabricGangInOneFabric(t *testing.T) {
	t.Parallel()
	var hosts []*Host
	fabrics := []id.Fabric{id.New[id.Fabric](), id.New[id.Fabric](), {}}
	for i := range 9 {
		h := newHost(fmt.Sprintf("h%d", i), "X", 4, money.Micro(1_000_000+i*100_000))
		h.Fabric = fabrics[i%3]
		hosts = append(hosts, h)
	}
	s := snapshotOf(hosts...)
	p, _ := Place(s, mustRequest(t, func(s *Spec) { s.Nodes, s.GPUsPerNode, s.Network.Scope = 3, 4, ScopeFabric }))
	if got := hostNames(s, p); !slices.Equal(got, []string{"h0", "h3", "h6"}) {
		t.Fatalf("%v", got)
	}
	s.Take(p)
	p, _ = Place(s, mustRequest(t, func(s *Spec) { s.Nodes, s.GPUsPerNode, s.Network.Scope = 3, 1, ScopeFabric }))
	if got := hostNames(s, p); !slices.Equal(got, []string{"h1", "h4", "h7"}) {
		t.Fatalf("%v", got)
	}
	_, why := Place(s, mustRequest(t, func(s *Spec) { s.Nodes, s.Network.Scope = 4, ScopeFabric }))
	last := why.Exclusions[len(why.Exclusions)-1]
	if last.Left != 0 || last.Excluded != 3 || last.Constraint != "network.scope = fabric: 4 hosts in one fabric, the "+
		"largest has 3" {
		t.Errorf("%+v", why)
	}
}

func TestPlaceOnOneHost(t *testing.T) {
	t.Parallel()
	mixed := newHost("mixed", "A", 2, 500_000)
	mixed.add("B", 4, 700_000)
	s := snapshotOf(newHost("small", "A", 2, 100_000), newHost("big", "A", 8, 900_000), mixed)
	a := mustRequest(t, func(s *Spec) { s.Nodes, s.GPUsPerNode, s.Network.Scope = 3, 2, ScopeHost })
	p, _ := Place(s, a)
	if got := hostNames(s, p); !slices.Equal(got, []string{"mixed", "mixed", "mixed"}) ||
		p.Rate != 2*(500_000+700_000+700_000) {
		t.Fatalf("%v at %s", got, p.Rate)
	}
	if g := p.gpuIDs(); len(g) != 6 {
		t.Errorf("%d different GPUs, want 6", len(g))
	}
	s.Take(p)
	if p, _ = Place(s, a); hostNames(s, p)[0] != "big" {
		t.Errorf("%v", hostNames(s, p))
	}
}

func TestEquallyCheapHostsBreakTheFleetUpLeast(t *testing.T) {
	t.Parallel()
	s := snapshotOf(newHost("whole", "X", 8, 1_000_000), newHost("half", "X", 8, 1_000_000).taken(4),
		newHost("rest", "X", 8, 1_000_000).taken(6))
	p, _ := Place(s, mustRequest(t, func(s *Spec) { s.GPUsPerNode = 2 }))
	if got := hostNames(s, p); got[0] != "rest" {
		t.Errorf("2 GPUs from %v", got)
	}
	p, _ = Place(s, mustRequest(t, func(s *Spec) { s.GPUsPerNode = 3 }))
	if got := hostNames(s, p); got[0] != "half" {
		t.Errorf("3 GPUs from %v", got)
	}
}

func TestExplainAddsUp(t *testing.T) {
	t.Parallel()
	busy := newHost("busy", "NVIDIA H100", 8, 2_000_000).taken(8)
	short := newHost("short", "NVIDIA H100", 8, 2_000_000)
	short.Offers[0].MaxDuration = 3600
	full := newHost("full", "NVIDIA H100", 8, 2_000_000)
	full.DiskFreeGB = 5
	alone := newHost("alone", "NVIDIA H100", 8, 2_000_000)
	alone.MultiNode = false
	s := snapshotOf(newHost("a100", "NVIDIA A100", 8, 1_000_000), busy, short, full, alone,
		newHost("small", "NVIDIA H100", 2, 1_000_000), newHost("fits", "NVIDIA H100", 8, 2_000_000))
	p, why := Place(s, mustRequest(t, func(s *Spec) { s.Nodes, s.GPUsPerNode, s.GPU = 2, 4, "gpu_model=H100 region=EU" }))
	if len(p.Nodes) != 0 {
		t.Fatalf("%+v", p)
	}
	var got []string
	left := why.Hosts
	for _, e := range why.Exclusions {
		left -= e.Excluded
		if left != e.Left {
			t.Errorf("%+v leaves %d", e, left)
		}
		got = append(got, fmt.Sprintf("%s: %d", e.Constraint, e.Excluded))
	}
	want := []string{"gpu_model = H100: 1", "gpus_per_node = 4: 1", "4 free now: 1",
		"no max_duration: the host takes no open-ended rentals: 1",
		"disk_gb = 10: 1", "multi_node: reachable from other hosts: 1", "nodes = 2: distinct hosts: 1"}
	if !slices.Equal(got, want) || left != 0 {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestRelaxProposesTheSmallestChange(t *testing.T) {
	t.Parallel()
	fast, slow, far := newHost("fast", "NVIDIA H200", 8, 3_000_000), newHost("slow", "NVIDIA H100", 8, 2_000_000),
		newHost("far", "NVIDIA H100", 8, 2_500_000)
	for i, h := range []*Host{fast, slow, far} {
		gbps := []float64{350, 150, 300}[i]
		h.BusbwGbps = &gbps
		h.Fabric = id.New[id.Fabric]()
	}
	far.Region = "us"
	a := mustRequest(t, func(s *Spec) {
		s.GPUsPerNode, s.GPU = 8, "gpu_model=H100 busbw_gbps>=200 region=eu"
	})
	_, why := Place(snapshotOf(fast, slow, far), a)
	if why.Hosts != 3 {
		t.Fatalf("%+v", why)
	}
	var got []string
	for _, r := range Relax(snapshotOf(fast, slow, far), a) {
		got = append(got, fmt.Sprintf("%s -> %s = %v at %s", r.From, r.To, r.Value, r.Rate))
	}
	want := []string{
		`busbw_gbps >= 200 -> busbw_gbps >= 150 = gpu_model = H100 busbw_gbps >= 150 region = eu at 16.000000`,
		`region = eu -> region in [eu,us] = gpu_model = H100 busbw_gbps >= 200 region in [eu,us] at 20.000000`,
		`gpu_model = H100 -> gpu_model in [H100,"NVIDIA H200"] = gpu_model in [H100,"NVIDIA H200"] busbw_gbps >= 200 region = eu at 24.000000`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestRelaxLimits(t *testing.T) {
	t.Parallel()
	h := newHost("h", "X", 4, 2_000_000)
	h.Offers[0].MaxDuration = 3600
	h.DiskFreeGB = 50
	s := snapshotOf(h)
	for _, c := range []struct {
		change func(*Spec)
		field  string
		value  any
	}{
		{func(s *Spec) {}, "max_duration", int64(3600)},
		{func(s *Spec) { d := int64(7200); s.MaxDuration = &d }, "max_duration", int64(3600)},
		{func(s *Spec) { d, p := int64(60), money.Micro(1_000_000); s.MaxDuration, s.MaxPricePerHour = &d, &p },
			"max_price_per_hour", money.Micro(2_000_000)},
		{func(s *Spec) { d := int64(60); s.MaxDuration, s.DiskGB = &d, 200 }, "disk_gb", int64(50)},
		{func(s *Spec) { d := int64(60); s.MaxDuration, s.Nodes = &d, 2 }, "nodes", 1},
		{func(s *Spec) { d := int64(60); s.MaxDuration, s.GPUsPerNode = &d, 6 }, "gpus_per_node", 4},
	} {
		a := mustRequest(t, c.change)
		if p, _ := Place(s, a); len(p.Nodes) > 0 {
			t.Fatalf("%+v fits", a)
		}
		r := Relax(s, a)
		if len(r) != 1 || r[0].Field != c.field || r[0].Value != c.value {
			t.Errorf("%+v, want %s = %v", r, c.field, c.value)
		}
	}
}

// TestPlaceIsExact compares with an oracle that tries every gang, on small random fleets.
func TestPlaceIsExact(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	fits := 0
	for i := range 3000 {
		hosts := randomFleet(r)
		a := randomRequest(r)
		s := snapshotOf(hosts...)
		p, why := Place(s, a)
		want, ok := cheapest(hosts, a)
		switch {
		case ok != (len(p.Nodes) > 0):
			t.Fatalf("%d: ask %+v: placed %v, oracle %v; %+v", i, a, len(p.Nodes) > 0, ok, why)
		case ok && p.Rate != want:
			t.Fatalf("%d: ask %+v: costs %s, cheapest %s", i, a, p.Rate, want)
		case ok:
			fits++
			checkPlacement(t, s, a, p)
		case why.Exclusions[len(why.Exclusions)-1].Left != 0:
			t.Fatalf("%d: nothing fits, yet hosts are left: %+v", i, why)
		}
	}
	if fits < 500 || fits > 2500 {
		t.Errorf("%d of 3000 asks fit: the fleets are too easy or too hard to tell anything", fits)
	}
}

// checkPlacement checks what must hold of every placement, then that it can be taken.
func checkPlacement(t *testing.T, s *Snapshot, a Request, p Placement) {
	t.Helper()
	seen := map[id.GPU]bool{}
	on := map[id.Host]bool{}
	for i, n := range p.Nodes {
		h := s.Host(n.Host)
		if n.Rank != i || len(n.GPUs) != a.GPUs || h.refuses(n, a.Duration) != "" {
			t.Fatalf("node %+v: %s", n, h.refuses(n, a.Duration))
		}
		for _, g := range n.GPUs {
			if seen[g.ID] {
				t.Fatalf("GPU %s twice", g.ID)
			}
			seen[g.ID] = true
		}
		on[n.Host] = true
		if a.Scope == ScopeFabric && a.Nodes > 1 && (n.Fabric.IsZero() || n.Fabric != p.Nodes[0].Fabric) {
			t.Fatalf("not in one fabric: %+v", p)
		}
	}
	if want := a.Nodes; a.Scope == ScopeHost && len(on) != 1 || a.Scope != ScopeHost && len(on) != want {
		t.Fatalf("scope %s: %d nodes on %d hosts", a.Scope, want, len(on))
	}
	s.Take(p)
	for _, n := range p.Nodes {
		if h := s.Host(n.Host); h.DiskFreeGB < 0 || h.RAMTakenMB > h.sellableRAMMB() || h.allFree(n.GPUs) {
			t.Fatalf("taken too much, or nothing: %+v", h)
		}
	}
}

func randomFleet(r *rand.Rand) []*Host {
	fabrics := []id.Fabric{id.New[id.Fabric](), id.New[id.Fabric](), {}}
	hosts := make([]*Host, 1+r.IntN(7))
	for i := range hosts {
		h := newHost(fmt.Sprintf("h%d", i), []string{"A", "B"}[r.IntN(2)], 1+r.IntN(4), money.Micro(1+r.IntN(5))*100_000)
		if r.IntN(3) == 0 {
			h.add("C", 1+r.IntN(4), money.Micro(1+r.IntN(5))*100_000)
		}
		for g := range h.GPUs {
			h.GPUs[g].Free = r.IntN(4) > 0
		}
		for o := range h.Offers {
			h.Offers[o].MinGPUs = 1 + r.IntN(2)
			h.Offers[o].MaxDuration = []int64{0, 0, 3600}[r.IntN(3)]
		}
		h.Fabric = fabrics[r.IntN(3)]
		h.MultiNode = r.IntN(6) > 0
		h.DiskFreeGB = int64(10 + r.IntN(60))
		hosts[i] = h
	}
	return hosts
}

func randomRequest(r *rand.Rand) Request {
	q, err := query.Parse([]string{"", "", "gpu_model in [A,C]", "gpu_model!=C"}[r.IntN(4)])
	if err != nil {
		panic(err)
	}
	a := Request{Nodes: 1 + r.IntN(3), GPUs: 1 + r.IntN(3), Query: q, DiskGB: 10, Duration: []int64{0, 1000}[r.IntN(2)],
		Scope: []Scope{ScopeAny, ScopeFabric, ScopeHost}[r.IntN(3)]}
	if r.IntN(4) == 0 {
		a.MaxRate = money.Micro(1+r.IntN(20)) * 100_000
	}
	return a
}

// cheapest is the oracle: every assignment of a (host, offer) to every node.
func cheapest(hosts []*Host, a Request) (money.Micro, bool) {
	best, found := money.Micro(0), false
	var try func(node int, cost money.Micro, used map[id.Host]int, free map[id.Offer]int, fabric *id.Fabric)
	try = func(node int, cost money.Micro, used map[id.Host]int, free map[id.Offer]int, fabric *id.Fabric) {
		if node == a.Nodes {
			if (a.MaxRate == 0 || cost <= a.MaxRate) && (!found || cost < best) {
				best, found = cost, true
			}
			return
		}
		for _, h := range hosts {
			n := used[h.ID]
			switch {
			case a.Scope == ScopeHost && len(used) > 0 && n == 0, a.Scope != ScopeHost && n > 0,
				a.Scope != ScopeHost && a.Nodes > 1 && !h.MultiNode,
				a.Scope == ScopeFabric && a.Nodes > 1 && (h.Fabric.IsZero() || fabric != nil && *fabric != h.Fabric),
				h.DiskFreeGB < a.DiskGB*int64(n+1):
				continue
			}
			for _, o := range h.Offers {
				if terms := a.Query.Terms(); len(terms) > 0 &&
					(o.Model == "C" && terms[0].Op == query.Ne || o.Model == "B" && terms[0].Op == query.In) {
					continue
				}
				if !o.takes(a.Duration) || o.MinGPUs > a.GPUs || h.free(o.Model)-free[o.ID] < a.GPUs {
					continue
				}
				used[h.ID]++
				free[o.ID] += a.GPUs
				try(node+1, cost+o.Price*money.Micro(a.GPUs), used, free, &h.Fabric)
				free[o.ID] -= a.GPUs
				if used[h.ID]--; used[h.ID] == 0 {
					delete(used, h.ID)
				}
			}
		}
	}
	try(0, 0, map[id.Host]int{}, map[id.Offer]int{}, nil)
	return best, found
}
