package base

import "testing"

func TestParseGB(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{
		"0": 0, "100": 100, "100GB": 100, "100 gb": 100, "2TB": 2000, "2 tb": 2000, "-5": -5,
	} {
		if got, err := ParseGB(s); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", "GB", " GB", "1.5", "1e3", "100MB", "100GiB", "100G B", "9223372036854775807", "9223372036854775807TB", "x",
	} {
		if got, err := ParseGB(s); err == nil {
			t.Errorf("%q is %d", s, got)
		}
	}
}
