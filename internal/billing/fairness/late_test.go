package fairness

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/interval"
)

func TestLate_Silences(t *testing.T) {
	t.Parallel()
	rec := func(from, to, received int64) DeafRecord { return DeafRecord{span(from, to), received} }
	for name, c := range map[string]struct {
		in    []DeafRecord
		since int64
		want  interval.Set
	}{
		"in time":                    {[]DeafRecord{rec(1000, 9000, 9100)}, 0, nil},
		"just in time":               {[]DeafRecord{rec(1000, 9000, 18_000)}, 0, nil},
		"late":                       {[]DeafRecord{rec(1000, 9000, 18_001)}, 0, set(1000, 18_001)},
		"the rest of one in time":    {[]DeafRecord{rec(9000, 90_000, 90_000), rec(1000, 9000, 9100)}, 0, nil},
		"the rest, by another clock": {[]DeafRecord{rec(10_500, 90_000, 90_000), rec(1000, 9000, 9100)}, 0, nil},
		"another silence": {[]DeafRecord{rec(20_000, 60_000, 60_000), rec(1000, 9000, 9100)}, 0,
			set(20_000, 60_000)},
		"all of it late":           {[]DeafRecord{rec(1000, 9000, 40_000), rec(9000, 39_000, 40_000)}, 0, set(1000, 40_000)},
		"from before what is read": {[]DeafRecord{rec(1000, 90_000, 90_000)}, 2000, nil},
		"inside of a longer one":   {[]DeafRecord{rec(1000, 90_000, 9000), rec(50_000, 60_000, 99_000)}, 0, nil},
	} {
		for range 2 {
			if diff := cmp.Diff(c.want, LateSilences(c.in, c.since)); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			slices.Reverse(c.in)
		}
	}
}
