package placement

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/internal/fleet/market/demand"
)

// policy fills a fleet.
type policy interface {
	// place takes the request or turns it away.
	place(q *demand.Request) bool
}

// fill lets requests arrive until they have requested as much GPU as there is, and returns the part of it, in percent,
// that is allocated then. Requests that find no place are dropped.
func fill(machines []Machine, arrivals []demand.Request, p policy) float64 {
	total := capacity(machines)
	var arrived, allocated int64
	for i := range arrivals {
		q := &arrivals[i]
		if arrived+q.GPU() > total {
			break
		}
		arrived += q.GPU()
		if p.place(q) {
			allocated += q.GPU()
		}
	}
	return 100 * float64(allocated) / float64(total)
}

func whole(gpus int) []int64 { return slices.Repeat([]int64{demand.Whole}, gpus) }

// looked is how many different hosts ours weighs per request.
const looked = 24

// newOurs is the market's own policy.
func newOurs(machines []Machine, requests []demand.Request) *ours {
	f := demand.NewFleet(demandOf(requests))
	f.Look = looked
	for i, m := range machines {
		f.Add(i, m.Model, m.CPU, m.Mem, whole(m.GPUs))
	}
	return &ours{f}
}

type ours struct{ fleet *demand.Fleet }

func (o *ours) place(q *demand.Request) bool {
	_, ok := o.fleet.Place(*q)
	return ok
}

// scorer says how good a host in the state is for a request that fits it, greater is better, and what is left of it
// then.
type scorer interface {
	score(s *demand.State, q *demand.Request) (float64, *demand.State)
}

// ranked takes the host with the best score, and among equals the first by name. Scores are computed once per state and
// request kind, and kept while any host is in the state.
type ranked struct {
	scorer
	hosts  []*demand.State
	states map[string]*demand.State
	memo   map[*demand.State]scored
}

type scored struct {
	score float64
	after *demand.State // nil: it does not fit
}

func newRanked(machines []Machine, s scorer) *ranked {
	r := &ranked{scorer: s, states: map[string]*demand.State{}, memo: map[*demand.State]scored{}}
	for _, m := range machines {
		r.hosts = append(r.hosts, r.intern(demand.NewState(m.Model, m.CPU, m.Mem, whole(m.GPUs))))
	}
	return r
}

// intern makes equal states one.
func (r *ranked) intern(s *demand.State) *demand.State {
	key := fmt.Sprint(s.Model, s.CPU, s.Mem, s.Left)
	if known := r.states[key]; known != nil {
		return known
	}
	r.states[key] = s
	return s
}

func (r *ranked) place(q *demand.Request) bool {
	clear(r.memo)
	best, top := -1, scored{}
	for i, s := range r.hosts {
		c, seen := r.memo[s]
		if !seen {
			if s.Fits(q) {
				c.score, c.after = r.score(s, q)
			}
			r.memo[s] = c
		}
		if c.after != nil && (best < 0 || c.score > top.score) {
			best, top = i, c
		}
	}
	if best < 0 {
		return false
	}
	r.hosts[best] = r.intern(top.after)
	return true
}
