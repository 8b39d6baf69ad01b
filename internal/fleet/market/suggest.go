package market

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/internal/fleet/market/query"
)

// suggest returns the query that was probably meant by one that matches nothing: each word and value that no offer has
// is replaced by the nearest that some offer has, or by an example of the field that it names. It returns nil if
// nothing is near.
func (s *Snapshot) suggest(q query.Query) *string {
	changed := false
	for i, t := range q.Terms() {
		if s.some(&t) {
			continue
		}
		better, near := t.Correct(s.valuesLike(t.Field))
		if near {
			q, changed = q.With(i, better), true
			continue
		}
		if !t.IsBare() {
			continue
		}
		f := query.FieldNamed(query.NearestField(t.String()))
		if f == nil {
			continue
		}
		if example, err := query.Parse(f.Example); err == nil {
			q, changed = q.With(i, example.Terms()[0]), true
		}
	}
	if !changed {
		return nil
	}
	out := q.String()
	return &out
}

// some reports whether any offer satisfies the term, with or without a free GPU.
func (s *Snapshot) some(t *query.Term) bool {
	for _, c := range s.classes {
		if t.Field.Kind != query.Identity {
			if t.Matches(&c.facts) {
				return true
			}
			continue
		}
		if slices.ContainsFunc(c.lots, func(l *lot) bool { return t.Matches(&l.who) }) {
			return true
		}
	}
	return false
}

// valuesLike returns the values that a term of the field can have: for a model its words, also in pairs, for a bare
// word the values of all fields in which it is searched.
func (s *Snapshot) valuesLike(f *query.Field) []string {
	values := map[string]bool{}
	for _, c := range s.classes {
		switch f.Kind {
		case query.Identity:
			return nil // there may be ten thousand of them
		case query.Text:
			values[c.Text(f)] = true
			continue
		case query.Bare:
			values[c.arch], values[c.region], values[c.fabricName] = true, true, true
		}
		words := c.modelWords.list
		for i, w := range words {
			values[w] = true
			if i > 0 {
				values[words[i-1]+" "+w] = true
			}
		}
	}
	delete(values, "")
	return slices.Sorted(maps.Keys(values))
}
