package slots

import "testing"

// A tenant takes its share and, with several leases, all places; each other lease still gets one.
func TestEveryLeaseGetsAPlace(t *testing.T) {
	t.Parallel()
	s := New(4, 2)
	take := func(lease string, want bool) func() {
		t.Helper()
		release, ok := s.Take(lease)
		if ok != want {
			t.Errorf("a place for %s: %t", lease, ok)
		}
		return release
	}
	release := take("a", true)
	take("a", true)
	take("a", false)
	take("b", true)
	take("b", true)
	last := take("c", true)
	take("c", false)
	release()
	release()
	take("a", false) // five were taken of four
	last()
	take("a", true)
	take("d", true)
	if len(s.by) != 3 {
		t.Errorf("%v", s.by)
	}
}
