package market

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Operator is the facts about an operator that decide whether its hosts may join gangs with other operators' hosts.
type Operator struct {
	// Bond is the part of the operator's bond that is not reserved for a lease.
	Bond money.Nano
	// AcceptUnbonded allows hosts without a bond in gangs with the operator's own, if the renter allows them, too
	// (TrustAny).
	AcceptUnbonded bool
	// LiabilityMax is the largest amount for which one of the operator's leases may be liable; nil means no limit.
	LiabilityMax *money.Nano
}

// Gangs is the facts that decide which hosts may form a gang together, in addition to the renter's own constraints. In
// a snapshot without it, every gang may be formed.
type Gangs struct {
	Operators map[id.Org]Operator    // a missing one has no bond
	Hosts     map[id.Host]money.Nano // limits of single hosts, like LiabilityMax
	Medians   map[string]money.Micro // median price per GPU-hour, by model; see fairness.StandbyRate
	Bans      map[Ban]bool
	// HostBans are hosts that may not join gangs because they failed in several; see fairness.GangBan.
	HostBans map[id.Host]bool
	// Locked are hosts that get no placements because a run on them, or on a host whose GPUs they took over, recently
	// ended by the host's fault.
	Locked map[id.Host]bool
	// Tenants are the organisations that rent fabrics with RDMA and exclude others from it.
	Tenants map[id.Fabric][]id.Org
	// Linked are, for each organisation, the operators that appear to be the same party. Organisations cannot rent from
	// themselves.
	Linked map[id.Org]map[id.Org]bool
}

// constraints returns the constraints of the request, and those between its renter and certain operators and hosts.
func (s *Snapshot) constraints(a *Request) []constraint {
	out := a.constraints()
	if s.gangs == nil {
		return out
	}
	if len(s.gangs.Locked) > 0 { // a running cluster may still get other GPUs of its own host
		out = append(out, constraint{
			name: "relist lock: a run on this host, or on one whose GPUs it took over, ended by the host's fault a short " +
				"time ago",
			named: func(w *identity) bool { return !s.gangs.Locked[w.host] || w.host == a.On },
		})
	}
	if len(s.gangs.HostBans) > 0 && (a.Nodes > 1 || a.Joins) {
		out = append(out, constraint{
			name: "gang ban: the host failed in three gangs within an hour, or fell out with hosts of three operators " +
				"within a day",
			named: func(w *identity) bool { return !s.gangs.HostBans[w.host] },
		})
	}
	if a.RDMA {
		out = append(out, constraint{
			name: "network.fabric = rdma: no other organisation rents the fabric",
			ok:   func(f *facts) bool { return s.gangs.soleTenant(f.fabric, a.Renter) },
		})
		mixed := s.mixedFabrics()
		out = append(out, constraint{
			name: "network.fabric = rdma: the fabric's ports are of one kind",
			ok:   func(f *facts) bool { return !mixed[f.fabric] },
		})
	}
	if a.Renter.IsZero() {
		return out
	}
	if linked := s.gangs.Linked[a.Renter]; len(linked) > 0 {
		out = append(out, constraint{name: notLinked, named: func(w *identity) bool { return !linked[w.org] }})
	}
	if len(s.gangs.Bans) > 0 && (a.Nodes > 1 || a.Joins) {
		out = append(out, constraint{name: "pair ban: a gang of yours on this host ended undecided within 24 hours",
			named: func(w *identity) bool { return !s.gangs.banned(a.Renter.UUID(), w.host.UUID()) }})
	}
	return out
}

// mixedFabrics returns the fabrics whose hosts lend ports of different kinds, which do not reach each other.
func (s *Snapshot) mixedFabrics() map[id.Fabric]bool {
	kind, mixed := map[id.Fabric]string{}, map[id.Fabric]bool{}
	for _, e := range s.hosts {
		h := e.host
		if h.Fabric.IsZero() || h.RDMAGbps == 0 || h.RDMALink == "" {
			continue
		}
		if was, ok := kind[h.Fabric]; ok && was != h.RDMALink {
			mixed[h.Fabric] = true
		}
		kind[h.Fabric] = h.RDMALink
	}
	return mixed
}

// soleTenant reports whether no other organisation than the renter excludes others from RDMA in the fabric.
func (g *Gangs) soleTenant(f id.Fabric, renter id.Org) bool {
	return !slices.ContainsFunc(g.Tenants[f], func(o id.Org) bool { return o != renter })
}

// Ban forbids a combination of two operators, or of a renter and a host. A is the smaller id.
type Ban struct{ A, B uuid.UUID }

// newBan returns the ban of a pair, in whichever order its ids are given.
func newBan(a, b uuid.UUID) Ban {
	if bytes.Compare(a[:], b[:]) > 0 {
		a, b = b, a
	}
	return Ban{a, b}
}

func (g *Gangs) banned(a, b uuid.UUID) bool { return g.Bans[newBan(a, b)] }

// Member is a rank of a gang: a running one that new ranks join, or one to be placed.
type Member struct {
	Operator    id.Org
	Model       string
	GPUs        int
	Rate        money.Micro // of the whole lease, per hour
	StandbyRate money.Micro // fixed at rent
	Joins       bool        // rank to be placed: its standby rate is not fixed yet
}

// Trust is which operators' hosts a renter accepts in a gang.
type Trust string

const (
	// TrustBonded requires the bond of every operator in a gang of several operators. The empty Trust means the same.
	TrustBonded Trust = "bonded"
	// TrustAny also accepts hosts without a bond, together with operators that accept them. If such a host fails, no one
	// pays the others' standby.
	TrustAny Trust = "any"
)

// liabilities returns, for each member of a gang, its standby rate and the amount for which its lease is liable.
func (g *Gangs) liabilities(gang []Member) ([]money.Micro, []money.Nano) {
	leases := make([]fairness.Lease, len(gang))
	for i, m := range gang {
		if !m.Joins {
			leases[i] = fairness.Lease{Operator: m.Operator, Rate: m.Rate, StandbyRate: m.StandbyRate}
			continue
		}
		var others []fairness.Price
		for _, o := range gang {
			if o.Operator != m.Operator {
				others = append(others, fairness.Price{Rate: o.Rate, GPUs: o.GPUs})
			}
		}
		rate := fairness.StandbyRate(fairness.Price{Rate: m.Rate, GPUs: m.GPUs}, g.Medians[m.Model], others)
		leases[i] = fairness.Lease{Operator: m.Operator, Rate: m.Rate, StandbyRate: rate}
	}
	rates, bonds := make([]money.Micro, len(gang)), make([]money.Nano, len(gang))
	for i := range leases {
		rates[i], bonds[i] = leases[i].StandbyRate, fairness.Bond(leases, i, fairness.BondTime)
	}
	return rates, bonds
}

// apart is the lots that a gang may not include. If no gang may be formed, it becomes a constraint of the explanation.
type apart struct {
	orgs  map[id.Org]bool
	hosts map[id.Host]bool
	only  *id.Org // include only this operator's hosts
	least money.Nano
	accepting,
	bonded bool
}

func (p *placing) keepsApart(w *identity) bool {
	x := p.apart
	if x == nil {
		return false
	}
	o := p.s.gangs.Operators[w.org]
	return x.orgs[w.org] || x.hosts[w.host] || x.only != nil && *x.only != w.org || x.bonded && o.Bond < max(1, x.least) ||
		x.accepting && !o.AcceptUnbonded
}

// members returns the ranks that the gang would have: first the running ones that it joins, then the new ones.
func (p *placing) members(g gang) []Member {
	out := slices.Clone(p.request.Gang)
	for _, l := range g.lots {
		out = append(out, Member{
			Operator: l.who.org,
			Model:    l.offer.Model,
			GPUs:     p.request.GPUs,
			Rate:     l.offer.Price * money.Micro(p.request.GPUs),
			Joins:    true,
		})
	}
	return out
}

// oneOperator reports whether all members belong to one operator. In such a gang no lease is liable.
func oneOperator(gang []Member) bool {
	for _, m := range gang {
		if m.Operator != gang[0].Operator {
			return false
		}
	}
	return true
}

// check reports whether the gang may not be formed, and adds the reasons to apart: operators with too small a bond,
// hosts above their limit, banned pairs.
func (p *placing) check(g gang, apart *apart) (fails bool) {
	all := p.members(g)
	if oneOperator(all) {
		return false
	}
	x, joins := p.s.gangs, len(p.request.Gang)
	_, bonds := x.liabilities(all)
	need := map[id.Org]money.Nano{}
	for i, l := range g.lots {
		need[l.who.org] += bonds[joins+i]
		o := x.Operators[l.who.org]
		if o.LiabilityMax != nil && bonds[joins+i] > *o.LiabilityMax {
			apart.orgs[l.who.org], fails = true, true
		}
		if most, ok := x.Hosts[l.who.host]; ok && bonds[joins+i] > most {
			apart.hosts[l.who.host], fails = true, true
		}
		for j := range joins + i { // exclude the later one: it is not cheaper
			if all[j].Operator != l.who.org && x.banned(all[j].Operator.UUID(), l.who.org.UUID()) {
				apart.orgs[l.who.org], fails = true, true
			}
		}
	}
	if apart.accepting {
		return fails // bonds are not required
	}
	for org, n := range need {
		if x.Operators[org].Bond < n {
			apart.orgs[org], fails = true, true
			p.short = max(p.short, n)
		}
	}
	return fails
}

// If a gang fails the check, its offending operators are excluded and the search is repeated, at most gangTries times.
// After patience tries, all operators are excluded at once whose bond is smaller than half of the largest missing bond.
const (
	gangTries = 64
	patience  = 8
)

// gangs returns a gang that may be formed, the cheapest found: g itself; or a gang of operators with sufficient bonds,
// of a single operator or, with TrustAny, of operators that accept hosts without a bond.
func (p *placing) gangs(g gang) gang {
	if p.s.gangs == nil || len(g.lots) == 0 || len(g.lots)+len(p.request.Gang) < 2 || !p.check(g, newApart()) {
		return g
	}
	var best gang
	consider := func(g gang) {
		if len(g.lots) > 0 && (len(best.lots) == 0 || g.cost < best.cost) {
			best = g
		}
	}
	first := newApart()
	first.bonded = true
	consider(p.without(first))
	if p.request.Trust == TrustAny {
		open := newApart()
		open.accepting = true
		consider(p.without(open))
	}
	consider(p.ofOneOperator())
	p.apart = nil
	if len(best.lots) == 0 {
		p.unbonded = first
	}
	return best
}

func newApart() *apart { return &apart{orgs: map[id.Org]bool{}, hosts: map[id.Host]bool{}} }

// without searches for a gang among fewer and fewer hosts until one may be formed or none is left.
func (p *placing) without(a *apart) gang {
	p.apart = a
	defer func() { p.apart = nil }()
	if a.accepting && slices.ContainsFunc(p.request.Gang,
		func(m Member) bool { return !p.s.gangs.Operators[m.Operator].AcceptUnbonded }) {
		return gang{}
	}
	for try := range gangTries {
		g := p.choose()
		if len(g.lots) == 0 || !p.check(g, a) {
			return g
		}
		if try >= patience && p.short > 0 {
			a.least = max(a.least, p.short/2)
		}
	}
	return gang{}
}

// ofOneOperator returns the cheapest gang of a single operator, which needs no bond.
func (p *placing) ofOneOperator() gang {
	var best gang
	if len(p.request.Gang) > 0 {
		if !oneOperator(p.request.Gang) {
			return best
		}
		a := newApart()
		a.only = &p.request.Gang[0].Operator
		p.apart = a
		defer func() { p.apart = nil }()
		return p.choose()
	}
	type in struct {
		org    id.Org
		fabric id.Fabric
	}
	fits, offers := map[*class]bool{}, map[in][]*lot{}
	for _, e := range p.s.hosts {
		var cheapest *lot // a host gets one rank
		for _, l := range e.lots {
			ok, known := fits[l.class]
			if !known {
				ok = p.fits(l.class)
				fits[l.class] = ok
			}
			if ok && (cheapest == nil || l.class.price < cheapest.class.price) && p.admits(l) {
				cheapest = l
			}
		}
		if cheapest == nil {
			continue
		}
		at := in{org: cheapest.who.org}
		if p.request.Scope == ScopeFabric {
			at.fabric = e.host.Fabric
		}
		offers[at] = append(offers[at], cheapest)
	}
	for _, lots := range offers {
		if len(lots) < p.request.Nodes {
			continue
		}
		slices.SortFunc(lots, func(a, b *lot) int {
			return cmp.Or(cmp.Compare(a.class.price, b.class.price),
				compareHosts(a, b))
		})
		g := gang{lots: lots[:p.request.Nodes]}
		for _, l := range g.lots {
			g.cost += l.class.price
		}
		if len(best.lots) == 0 || g.cost < best.cost || g.cost == best.cost && compareHosts(g.lots[0], best.lots[0]) < 0 {
			best = g
		}
	}
	return best
}

// freeze sets each rank's standby rate and the amount for which its lease is liable.
func (p *placing) freeze(out *Placement, g gang) {
	if p.s.gangs == nil || len(g.lots)+len(p.request.Gang) < 2 {
		return
	}
	all := p.members(g)
	rates, bonds := p.s.gangs.liabilities(all)
	need := map[id.Org]money.Nano{}
	for i, l := range g.lots {
		need[l.who.org] += bonds[len(p.request.Gang)+i]
	}
	for i := range out.Nodes {
		n := &out.Nodes[i]
		n.StandbyRate = rates[len(p.request.Gang)+i]
		if o := p.s.gangs.Operators[n.HostOrg]; o.Bond >= need[n.HostOrg] {
			n.Bond = bonds[len(p.request.Gang)+i]
		}
	}
}

// bondConstraint explains the hosts that were excluded because of bonds, limits and bans.
func (p *placing) bondConstraint() constraint {
	name := "gang bond: the operator's bond covers a gang with other operators' hosts"
	if p.short > 0 {
		name += fmt.Sprintf(" (here up to %s)", p.short.Plain())
	}
	return constraint{name: name, named: func(w *identity) bool {
		p.apart = p.unbonded
		defer func() { p.apart = nil }()
		return !p.keepsApart(w)
	}}
}
