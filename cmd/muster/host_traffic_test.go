package main

import "testing"

func TestTheDataOfAMonthIsShownOfItsCap(t *testing.T) {
	t.Parallel()
	gb := int64(200)
	for bytes, want := range map[int64]string{
		0:               "0.0 of 200 GB  [....................] 0 %",
		50_000_000_000:  "50.0 of 200 GB  [#####...............] 25 %",
		199_999_999_999: "200.0 of 200 GB  [###################.] 99 %",
		500_000_000_000: "500.0 of 200 GB  [####################] 250 %",
	} {
		if got := dataUsed(bytes, &gb); got != want {
			t.Errorf("%d: %q, want %q", bytes, got, want)
		}
	}
	if got := dataUsed(7_000_000_000, nil); got != "7.0 GB, no cap" {
		t.Error(got)
	}
}
