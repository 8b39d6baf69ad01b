package base

import "testing"

func TestSpansAreReadable(t *testing.T) {
	t.Parallel()
	for s, want := range map[int64]string{
		0:      "0s",
		40:     "40s",
		60:     "1m",
		125:    "2m 5s",
		7200:   "2h",
		7500:   "2h 5m",
		7201:   "2h",
		604800: "7d",
		90000:  "1d 1h",
	} {
		if got := Seconds(s); got != want {
			t.Errorf("%d: %q, want %q", s, got, want)
		}
	}
}
