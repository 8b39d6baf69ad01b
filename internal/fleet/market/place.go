package market

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Place returns the cheapest gang that satisfies the request. Each node is on GPUs of one offer; the nodes are on
// distinct hosts unless the scope is host, and in one fabric if the scope is fabric. Among equally cheap gangs, Place
// chooses the one that fragments the fleet least. Place is pure and exact: no possible gang is cheaper, except among
// gangs of several operators if the bonds do not suffice for the cheapest one; see gangs.
//
// If nothing fits, the placement has no nodes and the explanation contains the reasons. Relax proposes changes after
// which something fits.
func Place(s *Snapshot, a Request) (Placement, Explain) {
	p := &placing{s: s, request: &a, constraints: s.constraints(&a)}
	g := p.find()
	if len(g.lots) == 0 {
		return Placement{}, p.explain()
	}
	return p.placement(g), Explain{}
}

// find returns the cheapest gang within the price limit.
func (p *placing) find() gang {
	g := p.gangs(p.choose())
	if len(g.lots) > 0 && p.request.MaxRate > 0 && p.rate(g) > p.request.MaxRate {
		p.tooDear = p.rate(g)
		return gang{}
	}
	return g
}

// choose returns the cheapest gang of the lots that p.apart does not exclude.
func (p *placing) choose() gang {
	switch {
	case p.request.Scope == ScopeHost:
		return p.onOneHost()
	case p.request.Scope == ScopeFabric && p.request.Nodes > 1 && p.request.Within.IsZero():
		return p.inOneFabric()
	}
	return p.fromLadder(&p.s.market)
}

// placing is the state of one call of Place.
type placing struct {
	s           *Snapshot
	request     *Request
	constraints []constraint
	scratch     []candidate
	tooDear     money.Micro // rate of the cheapest gang if it is above the limit
	apart       *apart      // lots that choose skips
	unbonded    *apart      // lots excluded by bonds and bans if no gang may be formed
	short       money.Nano  // largest bond that an operator lacked
}

// gang is the chosen lots, one per node; cost is the sum of their prices per GPU-hour. Without lots, nothing fits.
type gang struct {
	lots []*lot
	cost money.Micro
}

func (p *placing) rate(g gang) money.Micro { return g.cost * money.Micro(p.request.GPUs) }

// fits reports whether the class satisfies all constraints on facts.
func (p *placing) fits(c *class) bool {
	if c.free < p.request.GPUs { // checked first: it fails most often
		return false
	}
	for i := range p.constraints {
		if ok := p.constraints[i].ok; ok != nil && !ok(&c.facts) {
			return false
		}
	}
	return true
}

// admits reports whether the lot satisfies all constraints on identities.
func (p *placing) admits(l *lot) bool {
	if p.keepsApart(&l.who) {
		return false
	}
	for i := range p.constraints {
		if named := p.constraints[i].named; named != nil && !named(&l.who) {
			return false
		}
	}
	return true
}

// candidate is a class that fits, with the fragmentation that taking a node of it would cause.
type candidate struct {
	class *class
	waste waste
}

// fromLadder returns the cheapest lots on distinct hosts, searching rung by rung.
func (p *placing) fromLadder(l *ladder) gang {
	g := gang{}
	for _, r := range l.rungs {
		fit := p.scratch[:0]
		for _, c := range r.classes {
			if p.fits(c) {
				fit = append(fit, candidate{c, wasteOf(c, p.request, p.request.GPUs)})
			}
		}
		p.scratch = fit
		if len(p.request.Cached) > 0 {
			p.takeRung(slices.Clone(fit), &g, true)
		}
		p.takeRung(fit, &g, false)
		if len(g.lots) == p.request.Nodes {
			return g
		}
	}
	return gang{}
}

// takeRung adds lots of equal price until the gang is complete, from the classes with the least waste first. If cached
// is set, it adds only lots whose host has the image.
func (p *placing) takeRung(fit []candidate, g *gang, cached bool) {
	for len(fit) > 0 && len(g.lots) < p.request.Nodes {
		best := 0
		for i := range fit {
			if fit[i].waste.less(fit[best].waste, fit[i].class, fit[best].class) {
				best = i
			}
		}
		p.takeFrom(fit[best].class, g, cached)
		fit[best] = fit[len(fit)-1]
		fit = fit[:len(fit)-1]
	}
}

// takeFrom adds lots of the class, on hosts that the gang does not use yet, until the gang is complete.
func (p *placing) takeFrom(c *class, g *gang, cached bool) {
	n := len(c.lots)
	for i := range n {
		if len(g.lots) == p.request.Nodes {
			return
		}
		l := c.lots[(i+p.s.turn%n)%n]
		if (!cached || p.request.Cached[l.who.host]) && p.admits(l) && !g.has(l.who.host) {
			g.lots = append(g.lots, l)
			g.cost += c.price
		}
	}
}

func (g *gang) has(h id.Host) bool {
	for _, l := range g.lots {
		if l.who.host == h {
			return true
		}
	}
	return false
}

// placement returns the placement of the gang: GPUs, shares and price lines of each node.
func (p *placing) placement(g gang) Placement {
	out := Placement{Nodes: make([]Placed, len(g.lots)), Rate: p.rate(g), Duration: p.request.Duration}
	hosts := map[id.Host]*Host{} // what earlier ranks left; only scope host uses a host twice
	for rank, l := range g.lots {
		h := hosts[l.who.host]
		if h == nil {
			h = l.entry.host
		}
		n := h.node(rank, l.offer, p.request)
		if n.Cached = p.request.Cached[h.ID]; n.Cached {
			n.Lines[1].Text += "; it holds the image already"
		}
		if p.request.Scope == ScopeHost {
			hosts[l.who.host] = h.without(n)
		}
		out.Nodes[rank] = n
	}
	p.freeze(&out, g)
	return out
}

// node returns a node on free GPUs of the offer. The host must have room for it.
func (h *Host) node(rank int, o *HostOffer, a *Request) Placed {
	count := a.GPUs
	cores, ram := h.share(o.Model, count)
	n := Placed{
		Rank:         rank,
		Host:         h.ID,
		HostName:     h.Name,
		HostOrg:      h.Org,
		Offer:        o.ID,
		Fabric:       h.Fabric,
		Model:        o.Model,
		GPUs:         h.choose(o.Model, count),
		CPUCores:     cores,
		RAMMB:        ram,
		DiskGB:       a.DiskGB,
		DiskLimited:  a.DiskLimited,
		Runtime:      a.Runtime,
		Entrypoint:   h.Entrypoint,
		Slice:        h.slicesOf(o.Model),
		ScratchGB:    a.ScratchGB + a.VolumesGB,
		Price:        o.Price,
		Rate:         o.Price * money.Micro(count),
		HostSharePPM: o.HostSharePPM,
	}
	if a.RDMA {
		n.Tenant = a.Renter
	}
	n.Lines = []Line{
		{
			Kind:      "gpu",
			Rank:      rank,
			Text:      fmt.Sprintf("%d × %s", count, o.Model),
			Quantity:  int64(count),
			UnitPrice: o.Price,
			Price:     n.Rate,
		},
		{
			Kind:     "host",
			Rank:     rank,
			Text:     fmt.Sprintf("%g CPU cores, %d MB memory, %s, network: included", cores, ram, a.extras()),
			Quantity: 1,
		},
	}
	return n
}

// extras describes for people what a node gets of its host besides CPU and memory.
func (a *Request) extras() string {
	out := fmt.Sprintf("%d GB disk", a.DiskGB)
	if a.DiskLimited {
		out += " (enforced)"
	}
	if a.ScratchGB > 0 {
		out += fmt.Sprintf(", %d GB scratch", a.ScratchGB)
	}
	if a.Runtime == agentapi.RuntimeRunsc {
		out += ", gVisor"
	}
	if a.RDMA {
		out += ", RDMA"
	}
	return out
}
