package fairness

import (
	"time"

	"github.com/musterhq/muster/internal/interval"
)

const (
	// StartSkew is how much later than the first rank another one may start at no one's expense.
	StartSkew = 5 * time.Second
	// GoTimeout is how long after the barrier is released every rank must have started.
	GoTimeout = 30 * time.Second
	// TailSlack is how long after the grace period a stopped workload's process may still end.
	TailSlack = 5 * time.Second
)

// Beginning is how a run's facts begin.
type Beginning struct {
	// FromMS is the beginning of Facts.Run (unix ms): the last start, or the first one when a rank is late.
	FromMS int64
	// Late are the ranks that started more than StartSkew after the first, or never, in ascending order. Their hosts pay
	// standby from FromMS to their own starts.
	Late []int
	// Excused is for each rank the time before its start that must be added to its attested time: that of ranks which
	// started in time, but not first.
	Excused []interval.Set
}

// Begin returns how the facts of a run begin whose ranks started at the given moments (unix ms; 0 = not started). It
// returns false when no rank has started.
func Begin(started []int64) (b Beginning, ok bool) {
	first, last := int64(Forever), int64(0)
	for _, s := range started {
		if s > 0 {
			first, last = min(first, s), max(last, s)
		}
	}
	if last == 0 {
		return b, false
	}
	b.Excused = make([]interval.Set, len(started))
	for k, s := range started {
		if s == 0 || s-first > StartSkew.Milliseconds() {
			b.Late = append(b.Late, k)
			continue
		}
		b.Excused[k] = interval.Of(interval.Span{Start: first, End: s})
	}
	if b.FromMS = first; len(b.Late) == 0 {
		b.FromMS, b.Excused = last, make([]interval.Set, len(started))
	}
	return b, true
}

// Tail returns the signed time for which a lease alone is billed after an end of the renter's own doing: from the stop
// to the end of the process, at most for the grace period and TailSlack. stopMS is unix ms.
func Tail(signed interval.Set, stopMS int64, grace time.Duration) interval.Set {
	return signed.Clip(interval.Span{Start: stopMS, End: stopMS + (grace + TailSlack).Milliseconds()})
}
