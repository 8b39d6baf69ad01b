package query

import (
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/money"
)

// Value returns the value of the first term `name o …`, as written, or "" if there is none. For a list it returns the
// first value.
func (q Query) Value(name, o string) string {
	if i := q.termOf(name, o); i >= 0 {
		return q.terms[i].values[0].raw
	}
	return ""
}

// Set returns the query with the term `name o v` in place of its terms with that field and operator. If v is "", Set
// removes those terms. The error is a *Error whose position is in the new term.
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

// SetIn returns the query with the term `name in [values]` in place of its = and in terms of that field.
func (q Query) SetIn(name string, values []string) (Query, error) {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = quote(v)
	}
	one, err := Parse(name + " in [" + strings.Join(quoted, ",") + "]")
	if err != nil {
		return Query{}, err
	}
	kept := slices.DeleteFunc(slices.Clone(q.terms), func(t Term) bool {
		return t.Field.Name == name && (t.Op == Eq || t.Op == In)
	})
	return Query{append(kept, one.terms...)}, nil
}

func (q Query) termOf(name, o string) int {
	return slices.IndexFunc(q.terms, func(t Term) bool { return t.Field.Name == name && string(t.Op) == o })
}

// Without returns the query without term i.
func (q Query) Without(i int) Query {
	return Query{slices.Delete(slices.Clone(q.terms), i, i+1)}
}

// With returns the query with t in place of term i.
func (q Query) With(i int, t Term) Query {
	terms := slices.Clone(q.terms)
	terms[i] = t
	return Query{terms}
}

// Bound returns the number with which an ordered term of a numeric field compares.
func (t Term) Bound() float64 { return t.values[0].num }

// WithBound returns an ordered term of a numeric field with another, inclusive bound: > becomes >= and < becomes <=.
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

// Including returns the term `field in [...]` with the values of an = or in term and the rows' values of its field. It
// returns false for a field that is numeric, an Identity or Bare, if a row lacks the field, or if there are too many
// values for a list.
func (t Term) Including(rows []Row) (Term, bool) {
	if t.Field.IsNumber() || t.Field.Kind == Identity || t.Field.Kind == Bare {
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
