package bond

import (
	"testing"
	"time"
)

// The sentences of suspensions: who failed, with the evidence, or that no host is to blame.
func TestSuspension_Sentences(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 12, 3, 5, 0, time.UTC)
	end := at.Add(30 * time.Second)
	peer := func(n int) *int { return &n }
	fact := func(kind string, rank int, p *int) Evidence {
		return Evidence{Kind: kind, Rank: rank, Peer: p, From: at, To: end}
	}
	names := map[int]string{1: "host lisbon-3"}
	for _, tc := range []struct {
		s           Suspension
		cause, full string
	}{
		{Suspension{Class: "platform"}, "Muster lost contact with the hosts; no host is to blame",
			"Muster lost contact with the hosts; no host is to blame."},
		{Suspension{Class: "undecided"}, "ranks lost contact with each other; no host is to blame",
			"Ranks lost contact with each other; no host is to blame."},
		{Suspension{
			Class:    "undecided",
			Evidence: []Evidence{fact("did_not_hear", 2, peer(0)), fact("did_not_hear", 0, peer(2))},
		},
			"ranks 0 and 2 lost contact with each other; no host is to blame",
			"Ranks 0 and 2 lost contact with each other; no host is to blame."},
		{Suspension{
			Class:    "proof",
			Culprits: []int{1},
		}, "rank 1 (host lisbon-3) was not proven up", "Rank 1 (host lisbon-3) was not proven up."},
		{Suspension{
			Class:    "proof",
			Culprits: []int{1},
			Evidence: []Evidence{fact("missing_reports", 1, nil), fact("not_proven", 1, nil)},
		},
			"rank 1 (host lisbon-3) was not proven up", "Rank 1 (host lisbon-3) was not proven up: its reports of " +
				"12:03:05–12:03:35 UTC are missing."},
		{Suspension{
			Class:    "silence",
			Culprits: []int{1},
			Evidence: []Evidence{fact("late_reports", 1, nil), fact("did_not_hear", 1, peer(0)),
				fact("did_not_hear", 0, peer(1)), fact("did_not_hear", 2, peer(1))},
		},
			"rank 1 (host lisbon-3) was cut off", "Rank 1 (host lisbon-3) was cut off: its reports of 12:03:05–12:03:35 " +
				"UTC came late and rank 1 and 2 other ranks lost contact with each other."},
		{Suspension{Class: "proof", Culprits: []int{0, 3}, Evidence: []Evidence{fact("not_well", 3, nil)}},
			"ranks 0 and 3 were not proven up", "Ranks 0 and 3 were not proven up: rank 3's host reported that it was " +
				"unhealthy, 12:03:05–12:03:35 UTC."},
	} {
		if got := tc.s.Cause(names); got != tc.cause {
			t.Errorf("%q, want %q", got, tc.cause)
		}
		if got := tc.s.explain(names); got != tc.full {
			t.Errorf("%q, want %q", got, tc.full)
		}
	}
}
