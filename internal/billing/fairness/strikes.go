package fairness

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/id"
)

const (
	// DoubtWindow and Doubts bound how often a host may be in doubt: the third doubt within the window is final at once.
	DoubtWindow = time.Hour
	Doubts      = 2
	// PairBan is how long a renter and a host, and two operators, are kept apart after a run of theirs ended undecided.
	PairBan = 24 * time.Hour
	// RelistLock is how long a host is not offered after a run ended by its fault.
	RelistLock = time.Hour

	strikes             = 3
	undecidedWindow     = 24 * time.Hour
	attributedWindow    = time.Hour
	firstBan, longBan   = time.Hour, 7 * 24 * time.Hour
	cleanTime           = 7 * 24 * time.Hour
	longestBanDoublings = 8 // 1 h × 2⁸ is more than longBan
)

// Strike is one event that counts against a host in gangs.
type Strike struct {
	AtMS int64 // unix ms
	// Against is the operator of the other end, for a run that ended undecided. It is the zero id for a failure or a
	// failed start that is proven to be this host's.
	Against id.Org
}

// DoubtIsFinal reports whether a doubt about a host that begins at nowMS is final at once, because the host was already
// in doubt twice within the last hour. doubts are the beginnings of its earlier doubts (unix ms), in any gang.
func DoubtIsFinal(doubts []int64, nowMS int64) bool {
	n := 0
	for _, d := range doubts {
		if d < nowMS && d > nowMS-DoubtWindow.Milliseconds() {
			n++
		}
	}
	return n >= Doubts
}

// GangBan returns until when (unix ms) the host is not placed in gangs, 0 if it never was banned. Three undecided ends
// with distinct operators within 24 hours, or three proven failures within an hour, ban it for an hour; each further
// ban is twice as long, up to seven days, and each week without a strike halves it again. Strikes may come in any
// order.
func GangBan(all []Strike) (untilMS int64) {
	all = slices.SortedStableFunc(slices.Values(all), func(a, b Strike) int { return cmp.Compare(a.AtMS, b.AtMS) })
	var recent []Strike // since the last ban
	doublings, last := 0, int64(0)
	for i, s := range all {
		if i > 0 {
			doublings = max(0, doublings-int((s.AtMS-last)/cleanTime.Milliseconds()))
		}
		last = s.AtMS
		recent = append(recent, s)
		if !enough(recent, s.AtMS) {
			continue
		}
		untilMS = max(untilMS, s.AtMS+min(firstBan<<doublings, longBan).Milliseconds())
		doublings, recent = min(doublings+1, longestBanDoublings), nil
	}
	return untilMS
}

// enough reports whether the strikes ban a host at the given moment.
func enough(recent []Strike, atMS int64) bool {
	attributed, opponents := 0, map[id.Org]bool{}
	for _, s := range recent {
		switch age := atMS - s.AtMS; {
		case s.Against == id.Org{} && age < attributedWindow.Milliseconds():
			attributed++
		case s.Against != id.Org{} && age < undecidedWindow.Milliseconds():
			opponents[s.Against] = true
		}
	}
	return attributed >= strikes || len(opponents) >= strikes
}
