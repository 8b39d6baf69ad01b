package bond

import (
	"testing"

	"github.com/musterhq/muster/internal/money"
)

// The median price of a model decides; where there is none, the operator's own price, at most the least elsewhere.
func TestUsualRate_MedianBeforeOwnPrice(t *testing.T) {
	t.Parallel()
	medians := Medians{"H100": 2_000_000}
	for _, c := range []struct {
		all  []listed
		want money.Micro
	}{
		{nil, 0},
		{[]listed{{"H100", 8, 10_000_000_000, 9_000_000_000}}, 16_000_000},
		{[]listed{{"H100", 8, 1_000_000, 0}}, 16_000_000},
		{[]listed{{"L4", 2, 10_000_000_000, 500_000}}, 1_000_000},
		{[]listed{{"L4", 2, 400_000, 500_000}}, 800_000},
		{[]listed{{"L4", 2, 700_000, 0}}, 1_400_000},
		{[]listed{{"H100", 1, 1, 1}, {"L4", 1, 3, 2}}, 2_000_002},
	} {
		if got := usualRate(c.all, medians); got != c.want {
			t.Errorf("%+v: %d, want %d", c.all, got, c.want)
		}
	}
}
