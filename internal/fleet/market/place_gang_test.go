package market

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

const h100 = "NVIDIA H100 80GB HBM3"

// gangWorld is hosts of one GPU each, one per operator, at rising prices: 2.00, 2.10, …
func gangWorld(n int) (*Snapshot, []*Host, *Gangs) {
	s, hosts := NewSnapshot(0), []*Host{}
	for i := range n {
		h := newHost(string(rune('a'+i)), h100, 1, money.Micro(2_000_000+100_000*i))
		hosts = append(hosts, h)
		s.Put(h)
	}
	g := &Gangs{
		Operators: map[id.Org]Operator{},
		Hosts:     map[id.Host]money.Nano{},
		Medians:   map[string]money.Micro{h100: 2_000_000},
		Bans:      map[Ban]bool{},
	}
	s.SetGangs(g)
	return s, hosts, g
}

func bonded(g *Gangs, hosts ...*Host) {
	for _, h := range hosts {
		g.Operators[h.Org] = Operator{Bond: 100 * money.Unit}
	}
}

func two(t *testing.T, change func(*Spec)) Request {
	return mustRequest(t, func(s *Spec) {
		s.Nodes = 2
		if change != nil {
			change(s)
		}
	})
}

func gangHas(t *testing.T, s *Snapshot, a Request, want ...string) Placement {
	t.Helper()
	p, why := Place(s, a)
	if got := hostNames(s, p); !slices.Equal(got, want) {
		t.Fatalf("placed on %v, want %v: %+v", got, want, why)
	}
	return p
}

// Security 1: a host whose operator has no bond is in no gang with others, however cheap it is. Alone it is rented as
// before.
func TestHostsWithoutABondAreInNoGang(t *testing.T) {
	t.Parallel()
	s, h, g := gangWorld(4)
	bonded(g, h[1], h[3])
	p := gangHas(t, s, two(t, nil), "b", "d")
	// 300 s of the other's standby: 2.30 and 2.10 per hour.
	if p.Nodes[0].Bond != 191_666_667 || p.Nodes[1].Bond != 175_000_000 || p.Nodes[0].StandbyRate != 2_100_000 {
		t.Errorf("liable for %s and %s, standby %s", p.Nodes[0].Bond, p.Nodes[1].Bond, p.Nodes[0].StandbyRate)
	}
	gangHas(t, s, mustRequest(t, func(*Spec) {}), "a")
	g.Operators[h[3].Org] = Operator{Bond: 174_999_999}
	_, why := Place(s, two(t, nil))
	last := why.Exclusions[len(why.Exclusions)-2]
	if !strings.HasPrefix(last.Constraint, "gang bond") || last.Excluded != 3 {
		t.Fatalf("%+v", why.Exclusions)
	}
}

// A gang of one operator needs no bond, and it is taken when it is the cheapest that may be formed.
func TestAGangOfOneOperatorNeedsNoBond(t *testing.T) {
	t.Parallel()
	s, h, _ := gangWorld(4)
	h[3].Org = h[2].Org
	s.Put(h[3])
	p := gangHas(t, s, two(t, nil), "c", "d")
	if p.Nodes[0].Bond != 0 || p.Nodes[1].Bond != 0 {
		t.Errorf("%+v", p.Nodes)
	}
	if p.Nodes[0].StandbyRate != p.Nodes[0].Rate {
		t.Errorf("standby %s, want its rate: relief pays by it", p.Nodes[0].StandbyRate)
	}
}

// trust: any takes hosts without a bond only beside operators that accept them.
func TestTrustAnyTakesUnbondedHostsThatAllAccept(t *testing.T) {
	t.Parallel()
	s, h, g := gangWorld(4)
	any := two(t, func(s *Spec) { s.Trust = TrustAny })
	if p, why := Place(s, any); len(p.Nodes) > 0 {
		t.Fatalf("%+v %+v", p, why)
	}
	for _, i := range []int{1, 2} {
		g.Operators[h[i].Org] = Operator{AcceptUnbonded: true}
	}
	p := gangHas(t, s, any, "b", "c")
	if p.Nodes[0].Bond != 0 || p.Nodes[1].Bond != 0 {
		t.Errorf("%+v", p.Nodes)
	}
	if p, _ := Place(s, two(t, nil)); len(p.Nodes) > 0 {
		t.Fatal("placed without the renter's consent")
	}
	offered := false
	for _, r := range Relax(s, two(t, nil)) {
		offered = offered || r.Field == "trust" && r.To == "any"
	}
	if !offered {
		t.Error("trust: any is not proposed, and it would fit")
	}
}

// A host's or an operator's own limit keeps it out of gangs in which it would be liable for more, and a pair ban keeps
// two operators apart.
func TestLimitsAndBansKeepHostsApart(t *testing.T) {
	t.Parallel()
	s, h, g := gangWorld(4)
	bonded(g, h...)
	gangHas(t, s, two(t, nil), "a", "b")
	g.Hosts[h[1].ID] = 1
	gangHas(t, s, two(t, nil), "a", "c")
	least := money.Nano(1)
	g.Operators[h[2].Org] = Operator{Bond: 100 * money.Unit, LiabilityMax: &least}
	gangHas(t, s, two(t, nil), "a", "d")
	x, y := h[0].Org.UUID(), h[3].Org.UUID()
	if g.banned(x, y) || g.banned(y, x) {
		t.Fatal("banned before")
	}
	if string(x[:]) > string(y[:]) {
		x, y = y, x
	}
	g.Bans[Ban{x, y}] = true
	if p, _ := Place(s, two(t, nil)); len(p.Nodes) > 0 {
		t.Fatalf("a banned pair was placed: %v", hostNames(s, p))
	}
}

// A host that failed in several gangs is placed in none for a while, and alone as before.
func TestABannedHostIsInNoGang(t *testing.T) {
	t.Parallel()
	s, h, g := gangWorld(3)
	bonded(g, h...)
	g.HostBans = map[id.Host]bool{h[0].ID: true}
	gangHas(t, s, two(t, nil), "b", "c")
	if p, _ := Place(s, mustRequest(t, func(*Spec) {})); len(p.Nodes) != 1 || p.Nodes[0].Host != h[0].ID {
		t.Errorf("a single node is placed on %v", hostNames(s, p))
	}
	g.HostBans[h[1].ID] = true
	p, why := Place(s, two(t, nil))
	if len(p.Nodes) > 0 || !slices.ContainsFunc(why.Exclusions, func(e client.Exclusion) bool {
		return e.Excluded == 2 &&
			strings.HasPrefix(e.Constraint, "gang ban")
	}) {
		t.Errorf("placed %v, explained %+v", hostNames(s, p), why)
	}
}

// The bond covers the figures of the design: 11.67 for a lease of eight nodes at 20.00 per hour.
func TestAnOperatorsLiabilityIsBounded(t *testing.T) {
	t.Parallel()
	s, g := NewSnapshot(0), &Gangs{Operators: map[id.Org]Operator{}, Medians: map[string]money.Micro{h100: 2_500_000}}
	for range 8 {
		h := newHost("x", h100, 8, 2_500_000)
		s.Put(h)
		bonded(g, h)
	}
	s.SetGangs(g)
	p, why := Place(s, mustRequest(t, func(s *Spec) { s.Nodes, s.GPUsPerNode = 8, 8 }))
	if len(p.Nodes) != 8 || p.Nodes[0].Bond != 11_666_666_667 {
		t.Fatalf("%+v %+v", p.Nodes, why)
	}
	// A neighbour at ten times the price raises no other host's liability above twice the median.
	dear := newHost("dear", h100, 8, 25_000_000)
	bonded(g, dear)
	gang := []Member{{
		Operator: id.New[id.Org](),
		Model:    h100,
		GPUs:     8,
		Rate:     20_000_000,
		Joins:    true,
	}, {Operator: dear.Org, Model: h100, GPUs: 8, Rate: 200_000_000, Joins: true}}
	rates, bonds := g.liabilities(gang)
	if rates[1] != 40_000_000 || bonds[0] != 3_333_333_334 {
		t.Errorf("standby %s, liable for %s", rates[1], bonds[0])
	}
}
