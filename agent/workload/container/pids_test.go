package container

import "testing"

// A node's limit of processes rises with its cores, and leaves three quarters of the host's to others.
func TestPids(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		cpus float64
		most int64
		want int64
	}{
		{1, 4 << 20, 3072},
		{8, 4 << 20, 10240},
		{192, 4 << 20, 198656},
		{192, 32768, 16384},
		{192, 0, 16384},
		{192, 400_000, 100_000},
	} {
		if got := pidsOf(tc.cpus, tc.most); got != tc.want {
			t.Errorf("%v cores of a host with %d: %d, want %d", tc.cpus, tc.most, got, tc.want)
		}
	}
}
