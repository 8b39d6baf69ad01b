package market

import (
	"slices"
	"testing"
)

// An offer has the lowest limit of its GPUs, or none if one of them reports none; a search for more leaves it out.
func TestOffersSayWhatTheirGPUsMayDraw(t *testing.T) {
	t.Parallel()
	full, mixed, untold := newHost("full", "X", 2, 3_000_000), newHost("mixed", "X", 2, 1_000_000),
		newHost("untold", "X", 2, 2_000_000)
	mixed.add("Y", 1, 9_000_000)
	for i, g := range []*HostGPU{&full.GPUs[0], &full.GPUs[1], &mixed.GPUs[0], &mixed.GPUs[1], &mixed.GPUs[2],
		&untold.GPUs[0]} {
		g.PowerLimitW, g.PowerDefaultW = []int64{700, 700, 700, 250, 100, 300}[i], 700
	}
	all := snapshotOf(full, mixed, untold)
	for h, want := range map[*Host][2]int64{full: {700, 700}, mixed: {250, 700}, untold: {0, 0}} {
		o := all.hosts[h.ID].lots[0].offerView()
		told := [2]int64{}
		for i, p := range []*int64{o.PowerLimitW, o.PowerDefaultW} {
			if p != nil {
				told[i] = *p
			}
		}
		if told != want || (o.PowerLimitW == nil) != (want[0] == 0) || (o.PowerDefaultW == nil) != (want[1] == 0) {
			t.Errorf("%s: %v, want %v", h.Name, told, want)
		}
	}
	for query, want := range map[string][]string{
		"":                                       {"mixed"},
		"power_limit_w>=300":                     {"full"},
		"power_limit_w<300":                      {"mixed"},
		"power_default_w=700 power_limit_w!=250": {"full"},
	} {
		p, why := Place(all, mustRequest(t, func(s *Spec) { s.GPU = query }))
		if got := hostNames(all, p); !slices.Equal(got, want) {
			t.Errorf("%q: %v %+v, want %v", query, got, why, want)
		}
	}
}
