package market

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// NearMiss is a search that differs in one term from one that matches nothing, and what it finds.
type NearMiss struct {
	Query    string // the whole search
	From, To string // the term that changes, and what it becomes; To "" = it is left out
	GPUs     int    // free
	Hosts    int
	Lowest   money.Micro // per GPU-hour
}

// maxNearMisses is the largest number of searches that are proposed.
const maxNearMisses = 4

// NearMisses returns the searches nearest to one that matches no offer: for each term the smallest change after which
// something matches, those with the most free GPUs first. It is empty if no single change suffices. Fault: Invalid for
// a malformed query.
func (m *Market) NearMisses(ctx context.Context, text string) ([]NearMiss, error) {
	q, err := query.Parse(text)
	if err != nil {
		return nil, fault.InvalidField("query.q", "%s", err)
	}
	if err := m.view.recent(ctx, m.cfg.MaxAge); err != nil {
		return nil, err
	}
	m.view.mu.RLock()
	defer m.view.mu.RUnlock()
	return m.view.snap.nearMisses(q), nil
}

func (s *Snapshot) nearMisses(q query.Query) (out []NearMiss) {
	for i := range q.Terms() {
		if miss, ok := s.nearMiss(q, i); ok {
			out = append(out, miss)
		}
	}
	slices.SortStableFunc(out, func(a, b NearMiss) int { return cmp.Compare(b.GPUs, a.GPUs) })
	return out[:min(len(out), maxNearMisses)]
}

// nearMiss changes one term: the bound of an ordered term becomes the nearest value that an offer has, a value becomes
// the one of which the most GPUs are free, and any other term is left out.
func (s *Snapshot) nearMiss(q query.Query, i int) (NearMiss, bool) {
	term := q.Terms()[i]
	found, _ := s.match(q.Without(i))
	if len(found) == 0 {
		return NearMiss{}, false
	}
	miss := NearMiss{From: term.String(), Query: q.Without(i).String()}
	if nearest, ok := nearestTerm(term, found); ok {
		changed := q.With(i, nearest)
		if matches, _ := s.match(changed); len(matches) > 0 {
			miss.To, miss.Query, found = nearest.String(), changed.String(), matches
		}
	}
	hosts := map[id.Host]bool{}
	for _, l := range found {
		miss.GPUs += l.class.free
		hosts[l.who.host] = true
		if miss.Lowest == 0 || l.class.price < miss.Lowest {
			miss.Lowest = l.class.price
		}
	}
	miss.Hosts = len(hosts)
	return miss, true
}

// nearestTerm returns the term with the nearest value among the lots, none of which satisfies it.
func nearestTerm(t query.Term, lots []*lot) (query.Term, bool) {
	switch t.Op {
	case query.Lt, query.Le, query.Gt, query.Ge:
		if t.Field.IsNumber() {
			return nearestBound(t, lots)
		}
	case query.Eq, query.In:
		if t.Field.Kind == query.Text || t.Field.Kind == query.Model {
			return commonest(t, lots)
		}
	}
	return query.Term{}, false
}

func nearestBound(t query.Term, lots []*lot) (query.Term, bool) {
	best, known := 0.0, false
	for _, l := range lots {
		v, ok := l.class.facts.Number(t.Field)
		if ok && !math.IsInf(v, 0) && (!known || math.Abs(v-t.Bound()) < math.Abs(best-t.Bound())) {
			best, known = v, true
		}
	}
	if !known {
		return query.Term{}, false
	}
	return t.WithBound(best), true
}

// commonest returns the term field = value with the value of which the most GPUs are free.
func commonest(t query.Term, lots []*lot) (query.Term, bool) {
	free := map[string]int{}
	best := ""
	for _, l := range lots {
		v := l.class.facts.Text(t.Field)
		if v == "" {
			continue
		}
		free[v] += l.class.free
		if best == "" || free[v] > free[best] || free[v] == free[best] && v < best {
			best = v
		}
	}
	if best == "" {
		return query.Term{}, false
	}
	q, err := query.Query{}.Set(t.Field.Name, string(query.Eq), best)
	if err != nil {
		return query.Term{}, false
	}
	return q.Terms()[0], true
}
