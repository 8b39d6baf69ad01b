package cli

import (
	"testing"

	"github.com/musterhq/muster/client"
)

func TestPowerIsNamedWhereItIsLess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit, made int // 0: not known
		note, gpu   string
	}{
		{250, 700, "limited to 250 of 700 W", "250 of 700"},
		{700, 700, "", "700"},
		{750, 700, "", "750 of 700"},
		{250, 0, "", "250"},
		{0, 700, "", ""},
	} {
		var o client.Offer
		var g client.HostGPU
		if c.limit > 0 {
			n := int64(c.limit)
			o.PowerLimitW, g.PowerLimitW = &n, &c.limit
		}
		if c.made > 0 {
			n := int64(c.made)
			o.PowerDefaultW, g.PowerDefaultW = &n, &c.made
		}
		if got := note(o); got != c.note {
			t.Errorf("%d of %d: the offer says %q, want %q", c.limit, c.made, got, c.note)
		}
		if got := power(g); got != c.gpu {
			t.Errorf("%d of %d: the host says %q, want %q", c.limit, c.made, got, c.gpu)
		}
	}
}
