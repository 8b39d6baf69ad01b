package metering

import (
	"strconv"

	"github.com/musterhq/muster/internal/interval"
)

type (
	// Interval is the time from Start up to but not including End, in unix milliseconds.
	Interval = interval.Span
	// Set is a set of milliseconds.
	Set = interval.Set
)

// SetOf returns the union of any intervals, in any order.
func SetOf(in ...Interval) Set { return interval.Of(in...) }

// literal is {start,end,start,end,…}: a bigint[] as PostgreSQL reads it.
func literal(s Set) string {
	b := []byte{'{'}
	for k, i := range s {
		if k > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, i.Start, 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, i.End, 10)
	}
	return string(append(b, '}'))
}
