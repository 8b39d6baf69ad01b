package market

import "github.com/musterhq/muster/internal/fleet/market/pack"

// usualDemand is what sizes of node renters ask for, as a guess that holds for any fleet: it only decides between equal
// prices. A host's processors and memory go with its GPUs, so they never run out apart and are left out.
var usualDemand = []pack.Kind{
	{Request: pack.Request{GPUs: 1, Milli: pack.Whole}, Part: 0.5},
	{Request: pack.Request{GPUs: 2, Milli: pack.Whole}, Part: 0.2},
	{Request: pack.Request{GPUs: 4, Milli: pack.Whole}, Part: 0.15},
	{Request: pack.Request{GPUs: 8, Milli: pack.Whole}, Part: 0.15},
}

// maxHostGPUs is how many GPUs of a model a host is told apart by; those with more count as if they had so many.
const maxHostGPUs = 32

// supply is the free GPUs of one model: how many hosts have how many, and so what taking some costs the others.
type supply struct {
	model   string
	outlook *pack.Outlook
	states  []*pack.State // by free GPUs
	cost    [][]float64   // by free GPUs, then by those taken
}

func newSupply(model string) *supply {
	return &supply{model: model, outlook: pack.NewOutlook(usualDemand)}
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
			left[i] = pack.Whole
		}
		s.states = append(s.states, pack.NewState(s.model, 0, 0, left))
		s.cost = append(s.cost, make([]float64, n+1))
	}
	return len(s.states) > before
}

func (s *supply) price() {
	for free, state := range s.states {
		for n := 1; n <= min(free, MaxGPUsPerNode); n++ {
			s.cost[free][n], _ = s.outlook.Best(state, &pack.Request{GPUs: n, Milli: pack.Whole})
		}
	}
}

// lost is what the demand to come loses when n GPUs are taken from a host with so many free, in thousandths of a GPU. A
// host with so many free was counted.
func (s *supply) lost(free, n int) float64 {
	return s.cost[min(free, maxHostGPUs)][min(n, MaxGPUsPerNode)]
}
