package agent

import "testing"

// A run is attested as well while everything of it works: its overlay, its GPUs, and the disks that it writes to.
func TestWell(t *testing.T) {
	t.Parallel()
	whole := view{rec: record{Started: true}, overlay: true}
	for name, tc := range map[string]struct {
		change func(*view)
		sick   string
		want   bool
	}{
		"all works":            {func(*view) {}, "", true},
		"it has not started":   {func(v *view) { v.rec.Started = false }, "", false},
		"the overlay is away":  {func(v *view) { v.overlay = false }, "", false},
		"a GPU is quarantined": {func(*view) {}, "GPU-1: Xid 79", false},
		"its scratch is lost":  {func(v *view) { v.scratchLost = "the disk is read-only" }, "", false},
		"a volume is lost":     {func(v *view) { v.volumes.lost = "the disk is read-only" }, "", false},
		"its ports are moved":  {func(v *view) { v.partitionLost = "in no partition" }, "", false},
	} {
		v := whole
		tc.change(&v)
		if got := v.well(step{do: actWatch}, tc.sick); got != tc.want {
			t.Errorf("%s: well %t", name, got)
		}
	}
}
