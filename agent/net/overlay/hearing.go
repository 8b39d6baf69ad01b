package overlay

import (
	"slices"

	"github.com/musterhq/muster/internal/agentapi"
)

// Hearing tracks which ranks a run receives nothing from over its overlay, and since when by CLOCK_BOOTTIME. The zero
// Hearing tracks none: after a restart the agent learns of them again from the overlay's process. It is not safe for
// concurrent use.
type Hearing struct {
	deaf  map[int]int64 // when the last byte arrived from each rank that is silent now
	ended map[int]int64 // when the last recorded silence of each rank ended
}

// sameEnd is the greatest difference between two readings of the same moment.
const sameEnd = 1000

// Take compares the overlay process's view of its peers with what is already recorded. It returns the deaf spans that
// have ended since, and those that continue (ToBootMS is 0). boot is when the process answered.
func (h *Hearing) Take(boot int64, peers []PeerStatus) (spans []agentapi.DeafSpan) {
	if h.deaf == nil {
		h.deaf, h.ended = map[int]int64{}, map[int]int64{}
	}
	end := func(rank int, from, to int64) {
		spans = append(spans, agentapi.DeafSpan{Rank: rank, FromBootMS: from, ToBootMS: to})
		h.ended[rank] = to
		delete(h.deaf, rank)
	}
	there := map[int]bool{}
	for _, p := range peers {
		there[p.Rank] = true
		from, goesOn := h.deaf[p.Rank]
		endedFrom, endedTo := max(0, boot-p.DeafFromMS), boot-p.DeafToMS // end of its last silence
		news := p.DeafFromMS > 0 && endedTo > h.ended[p.Rank]+sameEnd
		switch {
		case goesOn && news && endedTo > from:
			end(p.Rank, from, endedTo)
		case goesOn && !p.Down():
			end(p.Rank, from, boot-p.SilentMS) // a process of an older version does not report it
		case !goesOn && news:
			end(p.Rank, endedFrom, endedTo)
		}
		if _, goesOn := h.deaf[p.Rank]; p.Down() && !goesOn {
			h.deaf[p.Rank] = max(0, boot-p.SilentMS)
		}
	}
	for rank, from := range h.deaf {
		if !there[rank] { // no longer a peer
			end(rank, from, boot)
			continue
		}
		spans = append(spans, agentapi.DeafSpan{Rank: rank, FromBootMS: from})
	}
	slices.SortFunc(spans, func(a, b agentapi.DeafSpan) int { return a.Rank - b.Rank })
	return spans
}

// Down lists the ranks that are silent now.
func (h *Hearing) Down() (out []agentapi.PeerDown) {
	for rank, from := range h.deaf {
		out = append(out, agentapi.PeerDown{Rank: rank, SinceBootMS: from})
	}
	slices.SortFunc(out, func(a, b agentapi.PeerDown) int { return a.Rank - b.Rank })
	return out
}
