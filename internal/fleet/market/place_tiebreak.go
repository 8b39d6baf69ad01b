package market

import (
	"cmp"

	"github.com/musterhq/muster/internal/fleet/market/demand"
)

// waste is how much taking the request's GPUs from a class would fragment the fleet. Smaller is better. It decides only
// between equal prices.
type waste struct {
	stranded int     // remaining GPUs that cannot be rented: fewer than the offer's minimum
	lost     float64 // loss for future demand, see package demand
	left     int     // free GPUs left on the host
	fabric   bool    // uses a fabric for a cluster that needs none
}

// wasteOf returns the waste of taking gpus GPUs from one host of the class.
func wasteOf(c *class, a *Request, gpus int) waste {
	w := waste{left: c.hostFree - gpus, lost: c.supply.lost(c.free, gpus)}
	if left := c.free - gpus; left > 0 && left < c.minGPUs {
		w.stranded = left
	}
	w.fabric = !c.fabric.IsZero() && (a.Nodes == 1 && !a.Joins || a.Scope == ScopeHost)
	return w
}

// less orders two classes of equal price. If their waste is equal, smaller and then weaker hosts come first. The
// remaining comparisons use facts only, so that a placement does not depend on the order in which hosts were added.
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

// usualDemand is the assumed distribution of node sizes. It is a guess that holds for any fleet, because it decides
// only between equal prices. CPU and memory are omitted: they are shared in proportion to a host's GPUs, so they never
// run out first.
var usualDemand = []demand.Kind{
	{Request: demand.Request{GPUs: 1, Milli: demand.Whole}, Part: 0.5},
	{Request: demand.Request{GPUs: 2, Milli: demand.Whole}, Part: 0.2},
	{Request: demand.Request{GPUs: 4, Milli: demand.Whole}, Part: 0.15},
	{Request: demand.Request{GPUs: 8, Milli: demand.Whole}, Part: 0.15},
}

// maxHostGPUs is the largest number of free GPUs of a model that supply distinguishes; hosts with more count as having
// this many.
const maxHostGPUs = 32

// supply is the free GPUs of one model: how many hosts have how many, and what taking some costs future demand.
type supply struct {
	model   string
	outlook *demand.Outlook
	states  []*demand.State // by free GPUs
	cost    [][]float64     // by free GPUs, then by GPUs taken
}

func newSupply(model string) *supply {
	return &supply{model: model, outlook: demand.NewOutlook(usualDemand)}
}

// count adds (more) or removes a host with the given number of free GPUs.
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

// grow adds the missing states for up to free GPUs and reports whether any were missing.
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

// lost returns the loss for future demand, in thousandths of a GPU, if n GPUs are taken from a host with the given
// number of free GPUs. Such a host must have been counted.
func (s *supply) lost(free, n int) float64 {
	return s.cost[min(free, maxHostGPUs)][min(n, MaxGPUsPerNode)]
}
