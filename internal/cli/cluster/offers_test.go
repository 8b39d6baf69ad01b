package cluster

import (
	"testing"

	"github.com/musterhq/muster/client"
)

func TestAnOfferNamesItsPowerLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit, standard int64 // in W; 0: unknown
		want            string
	}{
		{250, 700, "limited to 250 of 700 W"},
		{700, 700, ""},
		{750, 700, ""},
		{250, 0, ""},
		{0, 700, ""},
	} {
		var o client.Offer
		if c.limit > 0 {
			o.PowerLimitW = &c.limit
		}
		if c.standard > 0 {
			o.PowerDefaultW = &c.standard
		}
		if got := note(o); got != c.want {
			t.Errorf("%d of %d W: %q, want %q", c.limit, c.standard, got, c.want)
		}
	}
}
