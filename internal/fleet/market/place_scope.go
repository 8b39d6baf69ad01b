package market

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// inOneFabric returns the cheapest gang within one fabric. Among equally cheap gangs it chooses the fabric with the
// fewest free GPUs, so that large fabrics stay free for large gangs.
func (p *placing) inOneFabric() gang {
	var best gang
	var in *fabric
	var bestID id.Fabric
	for fid, fab := range p.s.fabrics {
		if fab.free < p.request.Nodes*p.request.GPUs {
			continue
		}
		least := fab.ladder.rungs[0].price * money.Micro(p.request.Nodes)
		if in != nil && (least > best.cost || least == best.cost && !fab.before(in, fid, bestID)) {
			continue // even its cheapest offers would not win
		}
		g := p.fromLadder(&fab.ladder)
		if len(g.lots) == 0 {
			continue
		}
		if in == nil || g.cost < best.cost || g.cost == best.cost && fab.before(in, fid, bestID) {
			best, in, bestID = g, fab, fid
		}
	}
	return best
}

// before orders fabrics of equal cost: by free GPUs, then by id.
func (f *fabric) before(g *fabric, fid, gid id.Fabric) bool {
	if f.free != g.free {
		return f.free < g.free
	}
	return fid.Compare(gid) < 0
}

// onOneHost returns the gang on the cheapest host that has room for all nodes.
func (p *placing) onOneHost() gang {
	best := p.onPlainHost()
	for _, e := range p.s.mixed {
		g := p.onMixedHost(e)
		if len(g.lots) > 0 && (len(best.lots) == 0 || g.cost < best.cost ||
			g.cost == best.cost && compareHosts(g.lots[0], best.lots[0]) < 0) {
			best = g
		}
	}
	return best
}

// onPlainHost returns the cheapest gang with all nodes on one offer.
func (p *placing) onPlainHost() gang {
	whole := p.request.GPUs * p.request.Nodes
	for _, r := range p.s.market.rungs {
		var best *lot
		var least waste
		for _, c := range r.classes {
			if c.free < whole || !p.fits(c) {
				continue
			}
			w := wasteOf(c, p.request, whole)
			if best != nil && !w.less(least, c, best.class) {
				continue
			}
			one := gang{}
			if p.takeOne(c, &one); len(one.lots) > 0 {
				best, least = one.lots[0], w
			}
		}
		if best != nil {
			return gang{slices.Repeat([]*lot{best}, p.request.Nodes), best.class.price * money.Micro(p.request.Nodes)}
		}
	}
	return gang{}
}

// takeOne adds the first lot of the class that the constraints admit.
func (p *placing) takeOne(c *class, g *gang) {
	n := len(c.lots)
	for i := range n {
		if l := c.lots[(i+p.s.turn%n)%n]; p.admits(l) {
			g.lots = append(g.lots, l)
			return
		}
	}
}

// onMixedHost fills the nodes from the host's offers, cheapest first.
func (p *placing) onMixedHost(e *entry) gang {
	lots := slices.Clone(e.lots)
	slices.SortStableFunc(lots, func(a, b *lot) int {
		return cmp.Or(cmp.Compare(a.offer.Price, b.offer.Price), a.who.offer.Compare(b.who.offer))
	})
	if n := int64(p.request.Nodes); e.lots[0].class.diskFreeGB < p.request.DiskGB*n ||
		e.lots[0].class.scratchFreeGB < (p.request.ScratchGB+p.request.VolumesGB)*n {
		return gang{}
	}
	var g gang
	for _, l := range lots {
		if !p.fits(l.class) || !p.admits(l) {
			continue
		}
		for left := l.class.free; left >= p.request.GPUs && len(g.lots) < p.request.Nodes; left -= p.request.GPUs {
			g.lots = append(g.lots, l)
			g.cost += l.offer.Price
		}
	}
	if len(g.lots) < p.request.Nodes {
		return gang{}
	}
	return g
}

func compareHosts(a, b *lot) int {
	x, y := a.who.host.UUID(), b.who.host.UUID()
	return bytes.Compare(x[:], y[:])
}
