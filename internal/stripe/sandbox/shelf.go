package sandbox

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// shelf keeps the objects of one kind, in the order in which they were made. The zero value is empty. An object may be
// changed only by who got or put it since the lock was taken.
type shelf[T any] struct {
	Objects map[string]*T `json:"objects"`
	Order   []string      `json:"order"` // oldest first
	touched []string      // got, put or dropped since settle: may have changed
}

func (s *shelf[T]) get(id string) *T {
	v := s.Objects[id]
	if v != nil {
		s.touch(id)
	}
	return v
}

func (s *shelf[T]) put(id string, v *T) *T {
	if s.Objects == nil {
		s.Objects = map[string]*T{}
	}
	if s.Objects[id] == nil {
		s.Order = append(s.Order, id)
	}
	s.Objects[id] = v
	s.touch(id)
	return v
}

func (s *shelf[T]) drop(id string) {
	if s.Objects[id] == nil {
		return
	}
	delete(s.Objects, id)
	i := slices.Index(s.Order, id)
	s.Order = slices.Delete(s.Order, i, i+1)
	s.touch(id)
}

func (s *shelf[T]) touch(id string) {
	if !slices.Contains(s.touched, id) {
		s.touched = append(s.touched, id)
	}
}

func (s *shelf[T]) learn(id string, body *string) error {
	if body == nil {
		s.drop(id)
	} else {
		v := new(T)
		if err := json.Unmarshal([]byte(*body), v); err != nil {
			return err
		}
		s.put(id, v)
	}
	s.settle()
	return nil
}

func (s *shelf[T]) changed() []string { return s.touched }

func (s *shelf[T]) body(id string) (string, error) {
	v := s.Objects[id]
	if v == nil {
		return "", nil
	}
	b, err := json.Marshal(v)
	return string(b), err
}

func (s *shelf[T]) settle()   { s.touched = s.touched[:0] }
func (s *shelf[T]) clear()    { *s = shelf[T]{} }
func (s *shelf[T]) size() int { return len(s.Order) }

func (s *shelf[T]) touchAll() { s.touched = slices.Clone(s.Order) }

// list is Stripe's list object.
type list struct {
	Object  string `json:"object"`
	Data    []any  `json:"data"`
	HasMore bool   `json:"has_more"`
	URL     string `json:"url"`
}

func listOf(url string, items ...any) list {
	if items == nil {
		items = []any{}
	}
	return list{Object: "list", Data: items, URL: url}
}

// pageOf answers a list request: newest first, those to keep, in pages of limit (10, at most 100) after starting_after.
func pageOf[T any](s *shelf[T], r *http.Request, keep func(q url.Values, v *T) bool) answer {
	q := r.URL.Query()
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit < 1 || limit > 100 {
		limit = 10
	}
	l := listOf(r.URL.Path)
	started := q.Get("starting_after") == ""
	for _, id := range slices.Backward(s.Order) {
		v := s.Objects[id]
		switch {
		case !started:
			started = id == q.Get("starting_after")
		case !keep(q, v):
		case len(l.Data) == limit:
			l.HasMore = true
			return ok(l)
		default:
			l.Data = append(l.Data, v)
		}
	}
	return ok(l)
}

// nested reads name[key]=value pairs of a form.
func nested(form url.Values, name string) map[string]string {
	out := map[string]string{}
	for k, v := range form {
		if len(k) > len(name)+2 && k[:len(name)+1] == name+"[" && k[len(k)-1] == ']' {
			out[k[len(name)+1:len(k)-1]] = v[0]
		}
	}
	return out
}

// orNull is a string that Stripe shows as null when there is none.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
