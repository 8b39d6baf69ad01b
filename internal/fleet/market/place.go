package market

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Place finds the cheapest gang that satisfies the ask: every node on GPUs of one offer, on distinct hosts unless the
// scope is host, all in one fabric when the scope is fabric. Among equally cheap ones it takes what breaks the fleet up
// least. It is pure and exact: no gang that fits is cheaper, but for gangs of several operators whose bonds do not
// suffice for the cheapest one: see gangs.
//
// When nothing fits the placement has no nodes and the explanation says why; Relax proposes what would fit.
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

// choose returns the cheapest gang of the lots that are not kept apart.
func (p *placing) choose() gang {
	switch {
	case p.request.Scope == ScopeHost:
		return p.onOneHost()
	case p.request.Scope == ScopeFabric && p.request.Nodes > 1 && p.request.Within.IsZero():
		return p.inOneFabric()
	}
	return p.fromLadder(&p.s.market)
}

// placing is one run of Place.
type placing struct {
	s           *Snapshot
	request     *Request
	constraints []constraint
	scratch     []candidate
	tooDear     money.Micro // what the cheapest gang costs when that is above the limit
	apart       *apart      // lots that choose leaves out
	unbonded    *apart      // those that bonds and bans left out, when nothing else fits
	short       money.Nano  // the most that an operator would have needed of its bond
}

// gang is the chosen lots, one per node; cost is the sum of their prices per GPU-hour. No lots: nothing fits.
type gang struct {
	lots []*lot
	cost money.Micro
}

func (p *placing) rate(g gang) money.Micro { return g.cost * money.Micro(p.request.GPUs) }

// fits reports whether lots of the class satisfy every constraint that the class decides.
func (p *placing) fits(c *class) bool {
	if c.free < p.request.GPUs { // most often what fails
		return false
	}
	for i := range p.constraints {
		if ok := p.constraints[i].ok; ok != nil && !ok(&c.facts) {
			return false
		}
	}
	return true
}

// admits reports whether the lot satisfies the constraints that name single hosts and offers.
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

// candidate is a class that fits, with how much taking a node of it would break the fleet up.
type candidate struct {
	class *class
	waste waste
}

// fromLadder takes the cheapest lots on distinct hosts, rung by rung.
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

// takeRung adds lots of equal price until the gang is whole, from the classes that break the fleet up least first; with
// cached only those whose host holds the image.
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

// takeFrom adds lots of the class, on hosts the gang does not have yet, until it is whole.
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

// placement gives the gang its GPUs, shares and lines.
func (p *placing) placement(g gang) Placement {
	out := Placement{Nodes: make([]Placed, len(g.lots)), Rate: p.rate(g), Duration: p.request.Duration}
	hosts := map[id.Host]*Host{} // as the ranks before left them: only scope host uses one twice
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

// node is a node of the gang on free GPUs of the offer. The host has what it needs.
func (h *Host) node(rank int, o *HostOffer, a *Request) Placed {
	count := a.GPUs
	cores, ram := h.share(count)
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
		ScratchGB:    a.ScratchGB,
		Price:        o.Price,
		Rate:         o.Price * money.Micro(count),
		HostSharePPM: o.HostSharePPM,
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

// extras is what else of the host goes with a node, for people.
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
	return out
}
