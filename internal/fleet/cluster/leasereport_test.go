package cluster

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
)

// A host's clock is ahead of ours by as long as its anchor's report was on its way. The start in a report that was
// quicker lies ahead of that report, and counts from there, as the segments do. No end lies ahead.
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
		h, late := readLease(row, s, clock, now, nil)
		if late || !h.from.Equal(now.Add(c.from)) || !h.exit.Equal(now.Add(c.till)) {
			t.Errorf("%s: from %s to %s of the report, want %s to %s", name, h.from.Sub(now), h.exit.Sub(now), c.from, c.till)
		}
	}
}

// A report attests all time since its host says that the rank is well, and no more than without that: what comes before
// is a gap, as it is for agents that do not say since when.
func TestAReportAttestsSinceTheRankIsWell(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000).UTC()
	ago := func(s int64) int64 { return now.UnixMilli() - s*1000 }
	clock := dbq.ReportClockRow{Now: now, BootMs: 1_000_000, ServerMs: now.UnixMilli()}
	unwell := ago(50)
	for name, c := range map[string]struct {
		goodSince int64 // seconds ago; 0: not reported
		good      bool  // the report before found it well
		want      []rankGap
	}{
		"not told":           {0, true, []rankGap{{from: ago(60), to: now.UnixMilli()}}},
		"well all the time":  {300, true, nil},
		"well since a while": {20, true, []rankGap{{from: ago(60), to: ago(20)}}},
		"was not well, not told": {0, false, []rankGap{{
			from: ago(60),
			to:   now.UnixMilli(),
		}, {from: ago(50), to: now.UnixMilli(), unwell: true}}},
		"was not well, and again": {20, false, []rankGap{{
			from: ago(60),
			to:   ago(20),
		}, {from: ago(50), to: ago(20), unwell: true}}},
	} {
		row := dbq.HostLeasesRow{
			LeaseEpoch: 1,
			NodeStatus: dbq.NodeStatus{
				Epoch:      1,
				BootID:     "b",
				LastGoodMs: ago(60),
				Good:       c.good,
				ReportedAt: now.Add(-time.Minute),
			},
		}
		row.Node.StartedAt = &time.Time{}
		if !c.good {
			row.NodeStatus.UnwellSinceMs = &unwell
		}
		st := agentapi.LeaseStatus{
			LeaseRef: agentapi.LeaseRef{Lease: row.LeaseID.String(), Epoch: 1},
			Started:  true,
			Good:     true,
		}
		if c.goodSince > 0 {
			st.GoodSinceBootMS = 1_000_000 - c.goodSince*1000
		}
		s := agentapi.Sync{BootID: "b", BootMS: 1_000_000, Leases: []agentapi.LeaseStatus{st}}
		h, late := readLease(row, s, clock, now, nil)
		if late {
			t.Fatal(name)
		}
		if diff := cmp.Diff(c.want, h.gaps("b", 35*time.Second), cmp.AllowUnexported(rankGap{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A claim counts from the last byte received, but a host cannot make it older than it takes to notice a silence. The
// claim about each rank goes on by itself, whatever other silences the host claims.
func TestClaimsCountFromTheLastByte(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000).UTC()
	ago := func(ms int64) int64 { return now.UnixMilli() - ms }
	clock := dbq.ReportClockRow{Now: now, BootMs: 1_000_000, ServerMs: now.UnixMilli()}
	row := dbq.HostLeasesRow{
		LeaseEpoch: 1,
		NodeStatus: dbq.NodeStatus{Epoch: 1, PeersDown: []int32{2, 4}, PeersFromMs: []int64{ago(40_000), ago(30_000)}},
	}
	st := agentapi.LeaseStatus{
		PeersDown: []int{5, 2, 1, 3},
		PeersDownSince: []agentapi.PeerDown{
			{
				Rank:        1,
				SinceBootMS: 1_000_000 - 7100,
			}, {Rank: 2, SinceBootMS: 1_000_000 - 7100}, {Rank: 3, SinceBootMS: 1_000_000 - 360_000}},
	}
	down, from := silentPeers(row, st, clock, now)
	if diff := cmp.Diff([]int32{1, 2, 3, 5}, down); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int64{ago(7100), ago(40_000), ago(8000), ago(0)}, from); diff != "" {
		t.Error(diff)
	}
}
