package client

import (
	"fmt"
	"strconv"
	"strings"
)

// Seconds are milliseconds, written as decimal seconds with three places: 300.000.
type Seconds int64

func (s Seconds) String() string { return fmt.Sprintf("%d.%03d", s/1000, s%1000) }

// MarshalJSON returns a JSON number with three decimals: exact, and never through a float.
func (s Seconds) MarshalJSON() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	whole, frac, _ := strings.Cut(string(b), ".")
	ms, err := strconv.ParseInt(whole+(frac + "000")[:3], 10, 64)
	*s = Seconds(ms)
	return err
}
