package query

import (
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/money"
)

// Value is what the query's first term `name op …` compares with, as written; "" when it has none. Terms that list
// several values are not looked at.
func (q Query) Value(name, o string) string {
	if i := q.termOf(name, o); i >= 0 {
		return q.terms[i].values[0].raw
	}
	return ""
}

// Set is the query with one term `name op value` in the place of those it has of that field and op; value "" leaves
// them out. The error is a *Error about the term alone.
func (q Query) Set(name, o, v string) (Query, error) {
	at := q.termOf(name, o)
	kept := slices.DeleteFunc(slices.Clone(q.terms), func(t Term) bool {
		return t.Field.Name == name && string(t.Op) == o
	})
	if v == "" {
		return Query{kept}, nil
	}
	one, err := Parse(name + o + quote(v))
	if err != nil {
		return Query{}, err
	}
	if at < 0 || at > len(kept) {
		at = len(kept)
	}
	return Query{slices.Insert(kept, at, one.terms...)}, nil
}

func (q Query) termOf(name, o string) int {
	return slices.IndexFunc(q.terms, func(t Term) bool { return t.Field.Name == name && string(t.Op) == o })
}

// Without is the query without its term i.
func (q Query) Without(i int) Query {
	return Query{slices.Delete(slices.Clone(q.terms), i, i+1)}
}

// With is the query with t in the place of its term i.
func (q Query) With(i int, t Term) Query {
	terms := slices.Clone(q.terms)
	terms[i] = t
	return Query{terms}
}

// Bound is the number that an ordered term of a numeric field compares with.
func (t Term) Bound() float64 { return t.values[0].num }

// WithBound is an ordered term of a numeric field with another bound, which is included: > becomes >= and < becomes <=.
func (t Term) WithBound(v float64) Term {
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if t.Field.Kind == Price {
		text = money.Micro(v).String()
	}
	switch t.Op {
	case Gt:
		t.Op = Ge
	case Lt:
		t.Op = Le
	}
	t.values = []value{{raw: text, text: text, num: v}}
	return t
}

// Including is the term `field in [...]` of the values of an = or in term and of what the rows have of the field. It
// is false for a field of numbers or names, for a row that has nothing of the field, and for more values than a list
// may have.
func (t Term) Including(rows []Row) (Term, bool) {
	if t.Field.IsNumber() || t.Field.Kind == Identity {
		return Term{}, false
	}
	values := slices.Clone(t.values)
	for _, r := range rows {
		text := r.Text(t.Field)
		if text == "" {
			return Term{}, false
		}
		if !slices.ContainsFunc(values, func(v value) bool {
			c, _ := t.Field.compare(r, &v)
			return c == 0
		}) {
			values = append(values, value{raw: text, text: strings.ToLower(text), words: Words(text)})
		}
	}
	t.Op, t.values = In, values
	return t, len(values) <= maxListItems
}
