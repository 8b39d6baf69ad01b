package cluster

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestEachThresholdIsToldOncePerDip(t *testing.T) {
	t.Parallel()
	const min, hour = time.Minute, time.Hour
	for name, c := range map[string]struct {
		runway []time.Duration
		told   []time.Duration // the runways for which each step sends a notice; 0: none
	}{
		"down to the end": {
			[]time.Duration{100 * hour, 24 * hour, 23 * hour, 2 * hour, hour, 59 * min, 10 * min, 5 * min, 0},
			[]time.Duration{0, 24 * hour, 0, 0, hour, 0, 10 * min, 0, 0},
		},
		"at once": {[]time.Duration{70 * time.Second, 60 * time.Second}, []time.Duration{10 * min, 0}},
		"swinging at a day": {[]time.Duration{24 * hour, 25 * hour, 24 * hour, 35 * hour, 23 * hour},
			[]time.Duration{24 * hour, 0, 0, 0, 0}},
		"swinging at ten minutes": {[]time.Duration{10 * min, 14 * min, 5 * min, 15 * min, 9 * min},
			[]time.Duration{10 * min, 0, 0, 0, 0}},
		"topped up, and down again": {[]time.Duration{10 * min, 100 * hour, 24 * hour, hour, 10 * min},
			[]time.Duration{10 * min, 0, 24 * hour, hour, 10 * min}},
		"a little, and down again": {[]time.Duration{10 * min, 2 * hour, hour, 9 * min},
			[]time.Duration{10 * min, 0, hour, 10 * min}},
		"within the same threshold": {[]time.Duration{10 * min, 30 * min, 9 * min},
			[]time.Duration{10 * min, 0, 10 * min}},
		"a day's warning is not twice": {[]time.Duration{20 * hour, 8 * hour, 30 * min, 20 * hour, 19 * hour},
			[]time.Duration{24 * hour, 0, hour, 0, 0}},
	} {
		var d dip
		for i, left := range c.runway {
			next, tell := d.sink(left)
			if got := map[bool]time.Duration{true: next.reported}[tell]; got != c.told[i] {
				t.Errorf("%s: at %s (step %d) tells of %s, want %s", name, left, i, got, c.told[i])
			}
			d = next
		}
	}
}

// However the runway moves: a notice is only sent for a threshold that was crossed, at most once while the runway does
// not rise above it again, and each crossed threshold has a notice of its own or of a nearer one.
func TestADipTellsWhatIsCrossed(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		var d dip
		rose := map[time.Duration]bool{} // since its last notice
		toldBefore := map[time.Duration]bool{}
		keys := map[[2]int64]bool{}
		left := time.Duration(r.Int64N(int64(72 * time.Hour)))
		for range 60 {
			if r.IntN(3) == 0 {
				left = time.Duration(r.Int64N(int64(72 * time.Hour)))
			} else {
				left = max(0, left+time.Duration(r.Int64N(int64(4*time.Hour))-int64(150*time.Minute)))
			}
			for _, w := range warnings {
				rose[w.left] = rose[w.left] || left > w.left
			}
			next, tell := d.sink(left)
			if tell {
				if left > next.reported || toldBefore[next.reported] && !rose[next.reported] {
					t.Fatalf("at %s tells of %s, rose: %v", left, next.reported, rose[next.reported])
				}
				if key := [2]int64{int64(next.reported), int64(next.rises)}; keys[key] {
					t.Fatalf("%v is told under the same key again", key)
				} else {
					keys[key] = true
				}
				toldBefore[next.reported], rose[next.reported] = true, false
			}
			for _, w := range warnings {
				if left <= w.left && (next.reported == 0 || next.reported > w.left) {
					t.Fatalf("at %s nothing is told of %s: %+v", left, w.left, next)
				}
			}
			d = next
		}
	}
}
