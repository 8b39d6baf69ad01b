package cluster

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
)

// A host's clock is ahead of ours by what its anchor's report was under way. A start that a quicker report tells of lies
// ahead of that report, and counts from there: so do the segments. An end lies nowhere ahead.
func TestStartsAheadOfTheirReport(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000).UTC()
	clock := dbq.ReportClockRow{Now: now, BootMs: 5_000, ServerMs: now.UnixMilli()} // boot 5,000 is now
	for name, c := range map[string]struct {
		start, exit int64
		from, till  time.Duration // from now
	}{
		"past":                    {4_900, 4_990, -100 * time.Millisecond, -10 * time.Millisecond},
		"ahead":                   {5_009, 5_012, 9 * time.Millisecond, 0},
		"too far ahead to be so":  {8_000, 9_000, 0, 0},
		"not told":                {0, 0, 0, 0},
		"before the host started": {-1, -1, 0, 0},
	} {
		row := dbq.HostLeasesRow{LeaseEpoch: 1}
		s := agentapi.Sync{Leases: []agentapi.LeaseStatus{{LeaseRef: agentapi.LeaseRef{Lease: row.LeaseID.String(), Epoch: 1},
			StartBootMS: c.start, ExitBootMS: c.exit}}}
		h, late := read(row, s, clock, now)
		if late || !h.from.Equal(now.Add(c.from)) || !h.exit.Equal(now.Add(c.till)) {
			t.Errorf("%s: from %s to %s of the report, want %s to %s", name, h.from.Sub(now), h.exit.Sub(now), c.from, c.till)
		}
	}
}
