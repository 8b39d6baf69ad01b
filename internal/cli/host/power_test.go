package host

import (
	"testing"

	"github.com/musterhq/muster/client"
)

func TestAHostNamesItsPowerLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit, standard int // in W; 0: unknown
		want            string
	}{
		{250, 700, "250 of 700"},
		{700, 700, "700"},
		{750, 700, "750 of 700"},
		{250, 0, "250"},
		{0, 700, ""},
	} {
		var g client.HostGPU
		if c.limit > 0 {
			g.PowerLimitW = &c.limit
		}
		if c.standard > 0 {
			g.PowerDefaultW = &c.standard
		}
		if got := power(g); got != c.want {
			t.Errorf("%d of %d W: %q, want %q", c.limit, c.standard, got, c.want)
		}
	}
}
