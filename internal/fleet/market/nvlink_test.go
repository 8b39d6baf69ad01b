package market

import (
	"slices"
	"testing"
)

// An offer has what the slowest of its GPUs sent over NVLink, if all were measured. Hosts that measure nearly the same
// are one class: a fleet of equal hosts is not as many different offers as it has hosts.
func TestOffersSayWhatNVLinkCarries(t *testing.T) {
	t.Parallel()
	hosts := map[string]*Host{}
	var all []*Host
	for name, gbps := range map[string][2]float64{
		"fast": {2981.4, 2990}, "fast too": {2955, 2999.9}, "slow": {2950, 310.9}, "half": {2950, 0}, "none": {0, 0},
	} {
		h := newHost(name, "X", 2, 1_000_000)
		for i := range h.GPUs {
			h.GPUs[i].NVLink, h.GPUs[i].NVLinkGbps, h.GPUs[i].BusbwNVLink = true, 3600, gbps[i]
		}
		hosts[name], all = h, append(all, h)
	}
	s := snapshotOf(all...)
	for name, want := range map[string]float64{"fast": 2900, "fast too": 2900, "slow": 310, "half": 0, "none": 0} {
		o := s.hosts[hosts[name].ID].lots[0].offerView()
		if got := o.BusbwNVLink; (got != nil) != (want > 0) || got != nil && *got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if a, b := s.hosts[hosts["fast"].ID].lots[0].class, s.hosts[hosts["fast too"].ID].lots[0].class; a != b {
		t.Error("two equal hosts are different offers")
	}
	for query, want := range map[string][]string{
		"busbw_nvlink>=2900":                   {"fast", "fast too"},
		"busbw_nvlink<1000":                    {"slow"},
		"busbw_nvlink>3000":                    nil,
		"busbw_nvlink>=0 nvlink_gbps=3600":     {"fast", "fast too", "slow"},
		"nvlink=true busbw_nvlink notin [310]": {"fast", "fast too"},
	} {
		p, why := Place(s, mustRequest(t, func(s *Spec) { s.GPU = query }))
		if got := hostNames(s, p); len(want) == 0 != (len(got) == 0) || len(got) > 0 && !slices.Contains(want, got[0]) {
			t.Errorf("%q: %v %+v, want one of %v", query, got, why, want)
		}
	}
}
