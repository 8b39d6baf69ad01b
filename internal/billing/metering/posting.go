package metering

import "time"

// How far the books may be behind what is proven, in ms. An entry costs more than the segment it is for, so a running
// lease is booked in steps; the hold covers what waits as it covers what is not proven yet.
const (
	postStepMS   = 15 * 60_000 // of billed time: so much is booked at once
	postWithinMS = 20 * 60_000 // nothing waits longer, however little it is
)

// steps says which leases are booked by a charge.
type steps int

const (
	inSteps steps = iota // those that are due
	inFull               // all, so that meter and books agree
)

// due reports whether what waits for the books, p, is booked now: enough has gathered, or it has waited long enough, or
// no more is to come soon because no window is open.
func (l *lease) due(p Posting) bool {
	if p.BilledMS >= postStepMS || l.unpostedSince != 0 && l.readAt-l.unpostedSince >= postWithinMS || l.ended() {
		return true
	}
	for _, w := range l.windows {
		if w.running() {
			return false
		}
	}
	return true
}

// post says what of p, the difference between the meter after a charge and the books, is booked with it, and gives the
// meter as it is then. What is not booked stays in the meter's exact numerator and is part of the next posting.
func (l *lease) post(after Meter, p Posting, how steps) (Meter, Posting, int64) {
	if !l.frozen && (how == inFull || l.due(p)) {
		return after, p, 0
	}
	// The time is kept, the money waits.
	after.Posted, after.HostPosted, after.PostedBilledMS = l.meter.Posted, l.meter.HostPosted, l.meter.PostedBilledMS
	since := l.unpostedSince
	switch {
	case p == Posting{}:
		since = 0
	case since == 0:
		since = l.readAt
	}
	return after, Posting{}, since
}

// UntouchedFor is how long nothing need be done for a cluster by Post and Authorise: Authorise changes nothing while
// more than the first is left of a lease's paid time, and Post posts what has waited for longer than the second.
const (
	UntouchedPaid   = fullStepMS / 2 * time.Millisecond
	UntouchedPosted = postWithinMS * time.Millisecond
)
