package cluster

import (
	"testing"

	"github.com/musterhq/muster/client"
)

func TestAnOfferNamesDegradedGPUs(t *testing.T) {
	t.Parallel()
	why := "1 of 8 GPUs: HW power brake since 2026-11-24 02:10 UTC"
	if got, want := note(client.Offer{Degraded: &why}), "degraded: "+why; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAnOfferSaysThatAGPUDrivesADisplay(t *testing.T) {
	t.Parallel()
	if got, want := note(client.Offer{Display: true, DiskLimited: true}), "drives a display, disk enforced"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

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
