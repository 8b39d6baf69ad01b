package fairness

import (
	"math"
	"time"
)

// PeerSilence is how long a rank receives nothing from a peer before it reports itself deaf to it. The span that it
// then signs begins at the last byte received.
const PeerSilence = 7 * time.Second

// ClockSlack is how far a host's signed moments may be from its reports' moments.
const ClockSlack = time.Second

// Forever is later than any moment, in unix milliseconds.
const Forever = math.MaxInt64

// Progress is how much of a required rank's story is known.
type Progress struct {
	// ReportedMS is the moment (unix ms) of the last accepted report of the rank that states that it was up, provided that
	// every deafness that the rank noticed before that moment is known: those that are over too, which no later report
	// repeats. After a lost report this takes the signed segments of the time in between.
	ReportedMS int64
	// Final reports that nothing more can come: the rank's last segment of this run is here, or its time to send it has
	// passed.
	Final bool
}

// Posted returns the moment up to which the billable time may be posted: below it, it can no longer become less. It is
// the earliest moment of the required ranks' last reports, less PeerSilence and ClockSlack: a deafness that began
// before it would have been in those reports. A rank that did not report in a gap of the platform holds it back until
// its report comes or can no longer come, because only then is it known whether the rank was deaf to others.
func Posted(ranks []Progress) int64 {
	at := int64(Forever)
	for _, r := range ranks {
		if !r.Final {
			at = min(at, r.ReportedMS-(PeerSilence+ClockSlack).Milliseconds())
		}
	}
	return at
}
