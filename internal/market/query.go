package market

import "github.com/musterhq/muster/internal/fault"

// Query is a parsed offer query.
type Query struct{}

// ParseQuery reads terms `field op value` joined by spaces. The empty query matches everything.
func ParseQuery(s string) (Query, error) {
	if s != "" {
		return Query{}, fault.New(fault.Unavailable, "queries are not read yet")
	}
	return Query{}, nil
}
