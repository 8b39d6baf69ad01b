package market

import "slices"

// Value is what the query's first term `name op …` compares with, as written; "" when it has none. Terms that list
// several values are not looked at.
func (q Query) Value(name, o string) string {
	if i := q.termOf(name, o); i >= 0 {
		return q.terms[i].values[0].raw
	}
	return ""
}

// Set is the query with one term `name op value` in the place of those it has of that field and op; value "" leaves
// them out. The error is a *QueryError about the term alone.
func (q Query) Set(name, o, v string) (Query, error) {
	at := q.termOf(name, o)
	kept := slices.DeleteFunc(slices.Clone(q.terms), func(t term) bool {
		return t.field.name == name &&
			string(t.op) == o
	})
	if v == "" {
		return Query{kept}, nil
	}
	one, err := ParseQuery(name + o + quote(v))
	if err != nil {
		return Query{}, err
	}
	if at < 0 || at > len(kept) {
		at = len(kept)
	}
	return Query{slices.Insert(kept, at, one.terms...)}, nil
}

func (q Query) termOf(name, o string) int {
	return slices.IndexFunc(q.terms, func(t term) bool { return t.field.name == name && string(t.op) == o })
}
