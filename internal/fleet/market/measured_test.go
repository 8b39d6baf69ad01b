package market

import (
	"slices"
	"testing"
)

// An offer drives a display if one of its GPUs does, and its PCIe link is that of the slowest GPU, measured only if all
// were.
func TestOffersSayWhatWasMeasuredOfTheirGPUs(t *testing.T) {
	t.Parallel()
	headless, desktop := newHost("headless", "X", 2, 3_000_000), newHost("desktop", "X", 2, 1_000_000)
	desktop.add("Y", 1, 9_000_000)
	for i, g := range []*HostGPU{&headless.GPUs[0], &headless.GPUs[1], &desktop.GPUs[0], &desktop.GPUs[1]} {
		g.PCIeGen, g.PCIeMeasured = []int{4, 3, 5, 5}[i], []bool{true, true, true, false}[i]
	}
	desktop.GPUs[1].Display = true
	all := snapshotOf(headless, desktop)
	for h, want := range map[*Host][3]any{headless: {false, 3, true}, desktop: {true, 5, false}} {
		o := all.hosts[h.ID].lots[0].offerView()
		if told := [3]any{o.Display, o.PCIeGen, o.PCIeMeasured}; told != want {
			t.Errorf("%s: %v, want %v", h.Name, told, want)
		}
	}
	if o := all.hosts[desktop.ID].lots[1].offerView(); o.Display {
		t.Error("the other model's GPU drives no display")
	}
	for query, want := range map[string][]string{
		"gpu_model=X":                                {"desktop"},
		"gpu_model=X display=false":                  {"headless"},
		"gpu_model=X display=true":                   {"desktop"},
		"gpu_model=X pcie_measured=true":             {"headless"},
		"gpu_model=X pcie_measured=true pcie_gen>=4": nil,
	} {
		p, why := Place(all, mustRequest(t, func(s *Spec) { s.GPU = query }))
		if got := hostNames(all, p); !slices.Equal(got, want) {
			t.Errorf("%q: %v %+v, want %v", query, got, why, want)
		}
	}
}
