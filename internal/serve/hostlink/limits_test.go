package hostlink

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/id"
)

// A host that floods is read as often as one that waits, and gets one answer a second.
func TestAFloodGainsNothing(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	l := newLimits(func() time.Time { return now })
	h := id.New[id.Host]()
	taken, told := 0, 0
	const perMS, seconds = 10, 20
	for range seconds * 1000 {
		for range perMS {
			wait, tell := l.take(h, "sync")
			switch {
			case wait == 0:
				taken++
			case wait > 100*time.Millisecond || wait%time.Millisecond != 0:
				t.Fatalf("told to wait %v", wait)
			case tell:
				told++
			}
		}
		now = now.Add(time.Millisecond)
	}
	r := rates["sync"]
	if most := r.burst + int(r.perSecond)*seconds; taken > most || taken < most-1 {
		t.Errorf("%d reports taken, want %d", taken, most)
	}
	if most := answersBurst + answersPerSecond*seconds; told > most {
		t.Errorf("told %d times, want at most %d", told, most)
	}
	if n := l.refused(h, "sync"); n != int64(seconds*1000*perMS-taken) {
		t.Errorf("%d refused of %d", n, seconds*1000*perMS)
	}
	if n := l.refused(h, "sync"); n != 0 {
		t.Errorf("%d refused twice", n)
	}
	if wait, tell := l.take(h, "dance"); wait == 0 || tell {
		t.Errorf("what no agent of ours says: %v %v", wait, tell)
	}
}

// However many hosts there are, none gets a new burst while its limit has not recovered, and silent hosts leave nothing
// behind.
func TestLimits_ForgetOnlyWhoHasRecovered(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	l := newLimits(func() time.Time { return now })
	flood := id.New[id.Host]()
	for range rates["sync"].burst {
		l.take(flood, "sync")
	}
	const fleet = 3 * leastSweep
	for range fleet {
		l.take(id.New[id.Host](), "sync")
	}
	if wait, _ := l.take(flood, "sync"); wait == 0 {
		t.Error("a host that floods has a new burst")
	}
	if len(l.by) != fleet+1 {
		t.Errorf("%d limits of %d hosts", len(l.by), fleet+1)
	}
	now = now.Add(time.Hour)
	for range 2 * fleet {
		l.take(id.New[id.Host](), "sync")
	}
	if l.by[limitKey{flood, "sync"}] != nil || len(l.by) > 2*fleet+leastSweep {
		t.Errorf("%d limits after an hour", len(l.by))
	}
}
