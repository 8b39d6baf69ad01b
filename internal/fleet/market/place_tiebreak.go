package market

import (
	"cmp"

	"github.com/musterhq/muster/internal/fleet/market/demand"
)

// waste says how much taking the ask's GPUs from a class would break the fleet up. Smaller is better; it only ever
// decides between equal prices.
type waste struct {
	stranded int     // GPUs left that nobody can rent: fewer than the offer's least
	lost     float64 // what the demand to come loses, see package demand
	left     int     // free GPUs left on the host
	fabric   bool    // takes from a fabric for a cluster that needs none
}

// wasteOf is the waste of taking gpus from one host of the class.
func wasteOf(c *class, a *Request, gpus int) waste {
	w := waste{left: c.hostFree - gpus, lost: c.supply.lost(c.free, gpus)}
	if left := c.free - gpus; left > 0 && left < c.minGPUs {
		w.stranded = left
	}
	w.fabric = !c.fabric.IsZero() && (a.Nodes == 1 && !a.Joins || a.Scope == ScopeHost)
	return w
}

// less orders two classes of one price. Where the waste is equal, smaller and then weaker hosts go first, and what is
// left decides by the facts alone, so that a placement does not depend on the order in which hosts were put.
func (w waste) less(v waste, c, d *class) bool {
	return cmp.Or(
		cmp.Compare(w.stranded, v.stranded),
		cmp.Compare(w.lost, v.lost),
		cmp.Compare(w.left, v.left),
		cmp.Compare(b2i(w.fabric), b2i(v.fabric)),
		cmp.Compare(c.hostTotal, d.hostTotal),
		cmp.Compare(c.vramGB, d.vramGB),
		cmp.Compare(c.diskFreeGB, d.diskFreeGB),
		cmp.Compare(c.scratchFreeGB, d.scratchFreeGB),
		cmp.Compare(c.ramMB, d.ramMB),
		cmp.Compare(c.cpuCores, d.cpuCores),
		cmp.Compare(c.model, d.model),
		cmp.Compare(c.region, d.region),
	) < 0
}

// usualDemand is what sizes of node renters ask for, as a guess that holds for any fleet: it only decides between equal
// prices. A host's processors and memory go with its GPUs, so they never run out apart and are left out.
var usualDemand = []demand.Kind{
	{Request: demand.Request{GPUs: 1, Milli: demand.Whole}, Part: 0.5},
	{Request: demand.Request{GPUs: 2, Milli: demand.Whole}, Part: 0.2},
	{Request: demand.Request{GPUs: 4, Milli: demand.Whole}, Part: 0.15},
	{Request: demand.Request{GPUs: 8, Milli: demand.Whole}, Part: 0.15},
}

// maxHostGPUs is how many GPUs of a model a host is told apart by; those with more count as if they had so many.
const maxHostGPUs = 32

// supply is the free GPUs of one model: how many hosts have how many, and so what taking some costs the others.
type supply struct {
	model   string
	outlook *demand.Outlook
	states  []*demand.State // by free GPUs
	cost    [][]float64     // by free GPUs, then by those taken
}

func newSupply(model string) *supply {
	return &supply{model: model, outlook: demand.NewOutlook(usualDemand)}
}

// count notes a host with so many free GPUs, or one less.
func (s *supply) count(free int, more bool) {
	free = min(free, maxHostGPUs)
	grown := s.grow(free)
	if more {
		s.outlook.Add(s.states[free])
	} else {
		s.outlook.Remove(s.states[free])
	}
	if s.outlook.Reprice() || grown {
		s.price()
	}
}

// grow makes states up to so many free GPUs and reports whether there were fewer.
func (s *supply) grow(free int) bool {
	before := len(s.states)
	for n := before; n <= free; n++ {
		left := make([]int64, n)
		for i := range left {
			left[i] = demand.Whole
		}
		s.states = append(s.states, demand.NewState(s.model, 0, 0, left))
		s.cost = append(s.cost, make([]float64, n+1))
	}
	return len(s.states) > before
}

func (s *supply) price() {
	for free, state := range s.states {
		for n := 1; n <= min(free, MaxGPUsPerNode); n++ {
			s.cost[free][n], _ = s.outlook.Best(state, &demand.Request{GPUs: n, Milli: demand.Whole})
		}
	}
}

// lost is what the demand to come loses when n GPUs are taken from a host with so many free, in thousandths of a GPU. A
// host with so many free was counted.
func (s *supply) lost(free, n int) float64 {
	return s.cost[min(free, maxHostGPUs)][min(n, MaxGPUsPerNode)]
}
