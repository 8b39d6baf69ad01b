package fairness

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/interval"
)

// Late is how much longer than PeerSilence after a change its report may be under way. A host that receives nothing
// from a peer notices that after PeerSilence and reports it at once.
const Late = 10 * time.Second

// DeafRecord is one deaf span about one peer as it was received.
type DeafRecord struct {
	interval.Span
	ReceivedMS int64 // unix ms
}

// joined is how far apart records of one silence may lie: the clocks that date them are anchored again now and then.
const joined = 2000

// LateSilences returns when a host was silent to the platform because it reported too late that it received nothing
// from a peer: from the beginning of each silence that arrived later than PeerSilence and Late after it, to the
// arrival. The records are those of one host about one peer, in any order. Records that abut are one silence, of which
// only the beginning can be late. A silence that begins before sinceMS is left out: earlier records of it may be
// missing.
func LateSilences(records []DeafRecord, sinceMS int64) interval.Set {
	records = slices.SortedFunc(slices.Values(records), func(a, b DeafRecord) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.ReceivedMS, b.ReceivedMS))
	})
	var late []interval.Span
	end := int64(-1 << 62)
	for _, r := range records {
		if r.Start > end+joined && r.Start >= sinceMS && r.ReceivedMS > r.Start+(PeerSilence+Late).Milliseconds() {
			late = append(late, interval.Span{Start: r.Start, End: r.ReceivedMS})
		}
		end = max(end, r.End)
	}
	return interval.Of(late...)
}
