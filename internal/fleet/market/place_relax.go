package market

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/market/query"
)

// maxRelaxations is the largest number of proposed changes.
const maxRelaxations = 6

// Relax proposes single changes of a request for which nothing fits. Each is the smallest change of its kind after
// which something fits; they are sorted by price. The result is empty if no single change suffices.
func Relax(s *Snapshot, a Request) []client.Relaxation {
	r := &relaxing{s: s, request: a}
	for i := range a.Query.Terms() {
		r.term(i)
	}
	r.size()
	r.scope()
	r.limits()
	r.trust()
	slices.SortStableFunc(r.out, func(a, b client.Relaxation) int { return cmp.Compare(a.Rate, b.Rate) })
	return r.out[:min(len(r.out), maxRelaxations)]
}

func (m *Market) relax(a Request) []client.Relaxation {
	m.view.mu.RLock()
	defer m.view.mu.RUnlock()
	return Relax(m.view.snap, a)
}

type relaxing struct {
	s       *Snapshot
	request Request
	out     []client.Relaxation
}

// fits places a changed request.
func (r *relaxing) fits(a Request) (Placement, bool) {
	p := &placing{s: r.s, request: &a, constraints: r.s.constraints(&a)}
	g := p.find()
	if len(g.lots) == 0 {
		return Placement{}, false
	}
	return p.placement(g), true
}

func (r *relaxing) propose(p Placement, field, from, to string, value any) {
	r.out = append(r.out, client.Relaxation{Field: field, From: from, To: to, Value: value, Rate: p.Rate})
}

// trust proposes accepting hosts without a bond, together with operators that accept them.
func (r *relaxing) trust() {
	if r.request.Trust == TrustAny || r.s.gangs == nil || r.request.Nodes+len(r.request.Gang) < 2 {
		return
	}
	a := r.request
	a.Trust = TrustAny
	if p, ok := r.fits(a); ok {
		r.propose(p, "trust", string(TrustBonded), string(TrustAny), TrustAny)
	}
}

// term relaxes one term of the query: it moves the bound of an ordered term to the nearest value that fits, adds the
// cheapest gang's values to an = or in term, and removes any other term.
func (r *relaxing) term(i int) {
	t := r.request.Query.Terms()[i]
	without := r.request
	without.Query = r.request.Query.Without(i)
	p, ok := r.fits(without)
	if !ok {
		return
	}
	propose := func(p Placement, changed query.Term) {
		r.propose(p, "gpu", t.String(), changed.String(), r.request.Query.With(i, changed).String())
	}
	switch t.Op {
	case query.Lt, query.Le, query.Gt, query.Ge:
		if t.Field.IsNumber() {
			if changed, p, ok := r.nearest(i); ok {
				propose(p, changed)
				return
			}
		}
	case query.Eq, query.In:
		if added, ok := r.widen(t, p); ok {
			propose(p, added)
			return
		}
	}
	r.propose(p, "gpu", t.String(), "", without.Query.String())
}

// nearest moves the bound of an ordered numeric term to the nearest value that fits. If a bound fits, all looser bounds
// fit, so a binary search over the existing values finds it.
func (r *relaxing) nearest(i int) (query.Term, Placement, bool) {
	t := r.request.Query.Terms()[i]
	atLeast := t.Op == query.Gt || t.Op == query.Ge
	seen := map[float64]bool{}
	var bounds []float64 // from the tightest to the loosest
	for _, c := range r.s.classes {
		v, known := c.facts.Number(t.Field)
		if known && !math.IsInf(v, 0) && !seen[v] && (atLeast && v < t.Bound() || !atLeast && v > t.Bound()) {
			seen[v] = true
			bounds = append(bounds, v)
		}
	}
	slices.Sort(bounds)
	if atLeast {
		slices.Reverse(bounds)
	}
	var best Placement
	var at query.Term
	n, found := slices.BinarySearchFunc(bounds, true, func(bound float64, _ bool) int {
		changed := t.WithBound(bound)
		a := r.request
		a.Query = r.request.Query.With(i, changed)
		if p, ok := r.fits(a); ok {
			best, at = p, changed
			return 0
		}
		return -1
	})
	return at, best, found && n < len(bounds)
}

// widen adds to an = or in term the values of the nodes in p, a gang that was found without the term.
func (r *relaxing) widen(t query.Term, p Placement) (query.Term, bool) {
	var rows []query.Row
	for _, n := range p.Nodes {
		for _, l := range r.s.hosts[n.Host].lots {
			if l.who.offer == n.Offer {
				rows = append(rows, &l.class.facts)
			}
		}
	}
	return t.Including(rows)
}

// size proposes fewer nodes, and fewer GPUs per node.
func (r *relaxing) size() {
	for n := r.request.Nodes - 1; n >= 1; n-- {
		a := r.request
		a.Nodes = n
		if p, ok := r.fits(a); ok {
			r.propose(p, "nodes", strconv.Itoa(r.request.Nodes), strconv.Itoa(n), n)
			break
		}
	}
	for n := r.request.GPUs - 1; n >= 1; n-- {
		a := r.request
		a.GPUs = n
		if p, ok := r.fits(a); ok {
			r.propose(p, "gpus_per_node", strconv.Itoa(r.request.GPUs), strconv.Itoa(n), n)
			break
		}
	}
}

// scope proposes the next wider scope that fits, and no bandwidth bound.
func (r *relaxing) scope() {
	wider := map[Scope][]Scope{ScopeHost: {ScopeFabric, ScopeAny}, ScopeFabric: {ScopeAny}}
	for _, s := range wider[r.request.Scope] {
		a := r.request
		a.Scope = s
		if p, ok := r.fits(a); ok {
			r.propose(p, "network.scope", string(r.request.Scope), string(s), s)
			break
		}
	}
	if r.request.MinGbps > 0 {
		a := r.request
		a.MinGbps = 0
		if p, ok := r.fits(a); ok {
			r.propose(p, "network.min_gbps", fmt.Sprintf("%g", r.request.MinGbps), "0", 0)
		}
	}
}

// limits proposes a sufficient price limit, a shorter duration, less disk and scratch, and less isolation.
func (r *relaxing) limits() {
	if r.request.MaxRate > 0 {
		a := r.request
		a.MaxRate = 0
		if p, ok := r.fits(a); ok {
			r.propose(p, "max_price_per_hour", r.request.MaxRate.String(), p.Rate.String(), p.Rate)
		}
	}
	r.duration()
	r.disk()
	r.scratch()
	r.isolation()
}

// isolation proposes giving up features that only some hosts have.
func (r *relaxing) isolation() {
	if a := r.request; a.DiskLimited {
		a.DiskLimited = false
		if p, ok := r.fits(a); ok {
			r.propose(p, "disk_limited", "true", "false", false)
		}
	}
	if a := r.request; a.Runtime == agentapi.RuntimeRunsc {
		a.Runtime = agentapi.RuntimeRunc
		if p, ok := r.fits(a); ok {
			r.propose(p, "runtime", agentapi.RuntimeRunsc, agentapi.RuntimeRunc, agentapi.RuntimeRunc)
		}
	}
}

func (r *relaxing) duration() {
	seen := map[int64]bool{}
	for _, c := range r.s.classes {
		if d := c.maxDuration; d > 0 && (r.request.Duration == 0 || d < r.request.Duration) {
			seen[d] = true
		}
	}
	longest := sortedKeys(seen)
	slices.Reverse(longest)
	if p, d, ok := r.first(longest, func(a *Request, d int64) { a.Duration = d }); ok {
		from := "open-ended"
		if r.request.Duration > 0 {
			from = strconv.FormatInt(r.request.Duration, 10)
		}
		r.propose(p, "max_duration", from, strconv.FormatInt(d, 10), d)
	}
}

func (r *relaxing) disk() {
	seen := map[int64]bool{}
	onHost := int64(r.request.nodesOnHost())
	for _, c := range r.s.classes {
		if d := c.diskFreeGB / onHost; d >= 1 && d < r.request.DiskGB {
			seen[d] = true
		}
	}
	most := sortedKeys(seen)
	slices.Reverse(most)
	if p, d, ok := r.first(most, func(a *Request, d int64) { a.DiskGB = d }); ok {
		r.propose(p, "disk_gb", strconv.FormatInt(r.request.DiskGB, 10), strconv.FormatInt(d, 10), d)
	}
}

// scratch proposes less scratch, or none.
func (r *relaxing) scratch() {
	if r.request.ScratchGB == 0 {
		return
	}
	seen := map[int64]bool{0: true}
	onHost := int64(r.request.nodesOnHost())
	for _, c := range r.s.classes {
		if d := c.scratchFreeGB/onHost - r.request.VolumesGB; d >= 0 && d < r.request.ScratchGB {
			seen[d] = true
		}
	}
	most := sortedKeys(seen)
	slices.Reverse(most)
	if p, d, ok := r.first(most, func(a *Request, d int64) { a.ScratchGB = d }); ok {
		r.propose(p, "scratch_gb", strconv.FormatInt(r.request.ScratchGB, 10), strconv.FormatInt(d, 10), d)
	}
}

// first returns the first value that fits. values must be sorted from the tightest to the loosest.
func (r *relaxing) first(values []int64, set func(*Request, int64)) (Placement, int64, bool) {
	var best Placement
	n, found := slices.BinarySearchFunc(values, true, func(v int64, _ bool) int {
		a := r.request
		set(&a, v)
		if p, ok := r.fits(a); ok {
			best = p
			return 0
		}
		return -1
	})
	if !found {
		return Placement{}, 0, false
	}
	return best, values[n], true
}

func sortedKeys(m map[int64]bool) []int64 {
	out := make([]int64, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
