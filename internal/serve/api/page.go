package api

import (
	"github.com/musterhq/muster/internal/fault"
)

// Page is the query of every list. (Exported because huma reads only exported fields.)
type Page struct {
	Limit int    `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"how many items at most"`
	After string `query:"after" maxLength:"200" doc:"next of the page before"`
}

// list is the answer of every list.
type list[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next" doc:"cursor of the next page; null on the last"`
}

// cursor reads After, "" being the start.
func cursor[T interface{ IsZero() bool }, P interface {
	*T
	UnmarshalText([]byte) error
}](p Page) (T, error) {
	var v T
	if err := P(&v).UnmarshalText([]byte(p.After)); err != nil {
		return v, fault.InvalidField("query.after", "is not a cursor of this list")
	}
	return v, nil
}

// cut makes a page of rows read with a limit of one more than asked for.
func cut[R, T any](rows []R, limit int, view func(R) T, id func(R) string) list[T] {
	out := list[T]{Items: make([]T, 0, min(len(rows), limit))}
	for i, r := range rows {
		if i == limit {
			next := id(rows[limit-1])
			out.Next = &next
			break
		}
		out.Items = append(out.Items, view(r))
	}
	return out
}

// pathID reads an id from a path. A text that is no id of the kind names nothing, so it is not found.
func pathID[T interface{ IsZero() bool }, P interface {
	*T
	UnmarshalText([]byte) error
}](s, noun string) (T, error) {
	var v T
	if err := P(&v).UnmarshalText([]byte(s)); err != nil || v.IsZero() {
		return v, fault.New(fault.NotFound, "there is no such %s", noun)
	}
	return v, nil
}
