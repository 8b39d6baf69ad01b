package host

import (
	"testing"

	"github.com/musterhq/muster/internal/id"
)

// Who is among a few is among more, and about as many as were asked for are.
func TestStages(t *testing.T) {
	t.Parallel()
	const n = 2000
	in := 0
	for range n {
		h := id.New[id.Host]()
		was := false
		for _, percent := range []int{0, 1, 10, 50, 100} {
			is := staged(h, "v1.0.0", percent)
			if was && !is || percent == 0 && is || percent == 100 && !is {
				t.Fatalf("%s at %d %%", h, percent)
			}
			if was = is; is && percent == 10 {
				in++
			}
		}
	}
	if in < n/20 || in > n/5 {
		t.Errorf("%d of %d are 10 %%", in, n)
	}
}

func TestWhenAVersionStops(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		done, failed int64
		stops        bool
	}{{0, 0, false}, {0, 1, true}, {1, 1, false}, {1, 2, true}, {100, 2, false}, {100, 3, true}} {
		if got := tooManyFailed(tc.done, tc.failed) != ""; got != tc.stops {
			t.Errorf("%d kept it, %d went back: %v", tc.done, tc.failed, got)
		}
	}
}
