package journal

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
)

func TestNextSegment(t *testing.T) {
	t.Parallel()
	anchor := func(n, boot, server int64) agentapi.Anchor {
		return agentapi.Anchor{BootID: "b", Number: n, BootMS: boot, ServerMS: server}
	}
	one := []agentapi.Anchor{anchor(1, 0, 1_000_000)}
	key := runKey{agentapi.LeaseRef{Lease: "ls_1", Epoch: 1}, "b"}
	type want struct {
		seq, anchor, boot, start, end, energy int64
		final                                 bool
	}
	for _, c := range []struct {
		name    string
		run     run
		anchors []agentapi.Anchor
		now     int64
		cut     bool
		want    *want
	}{
		{"not due", run{StartBoot: 500, CutBoot: 500}, one, 300_499, false, nil},
		{"full", run{
			StartBoot: 500,
			CutBoot:   500,
			Energy:    7,
		}, one, 300_500, false, &want{1, 1, 300_500, 1_000_500, 1_300_500, 7, false}},
		{"cut early", run{
			StartBoot: 500,
			CutBoot:   500,
			Energy:    7,
		}, one, 1500, true, &want{1, 1, 1500, 1_000_500, 1_001_500, 7, false}},
		{"cut at once is nothing", run{StartBoot: 500, CutBoot: 500}, one, 500, true, nil},
		{"no anchor yet", run{StartBoot: 500, CutBoot: 500}, nil, 900_000, true, nil},
		{"another boot's anchor", run{
			StartBoot: 500,
			CutBoot:   500,
		}, []agentapi.Anchor{{BootID: "x", Number: 1}}, 900_000, true, nil},
		{"long unobserved: whole ones first", run{
			StartBoot: 0,
			Energy:    9,
		}, one, 1_000_000, false, &want{1, 1, 300_000, 1_000_000, 1_300_000, 0, false}},
		{"ended", run{
			StartBoot: 0,
			Ended:     true,
			EndBoot:   4000,
		}, one, 9000, false, &want{1, 1, 4000, 1_000_000, 1_004_000, 0, true}},
		{"ended at its cut", run{
			StartBoot: 0,
			Seq:       3,
			CutBoot:   4000,
			CutMS:     1_004_000,
			Anchor:    1,
			Ended:     true,
			EndBoot:   4000,
		}, one, 9000, false,
			&want{4, 1, 4000, 1_004_000, 1_004_000, 0, true}},
		{"closed", run{Closed: true, Ended: true}, one, 9000, true, nil},
		{"newest anchor at the boundary", run{Seq: 1, CutBoot: 1000, CutMS: 1_001_000, Anchor: 1},
			append(one, anchor(2, 0, 1_000_030)), 2000, true, &want{2, 2, 2000, 1_001_000, 1_002_030, 0, false}},
		{"a jump back keeps the older line", run{Seq: 1, CutBoot: 1000, CutMS: 1_001_000, Anchor: 1},
			append(one, anchor(2, 0, 900_000)), 2000, true, &want{2, 1, 2000, 1_001_000, 1_002_000, 0, false}},
		{"a small jump back is taken once time has passed it", run{Seq: 1, CutBoot: 1000, CutMS: 1_001_000, Anchor: 1},
			append(one, anchor(2, 0, 999_500)), 2000, true, &want{2, 2, 2000, 1_001_000, 1_001_500, 0, false}},
		{"a jump ahead shortens the segment", run{Seq: 1, CutBoot: 1000, CutMS: 1_001_000, Anchor: 1},
			append(one, anchor(2, 0, 1_200_000)), 120_000, false, &want{2, 2, 101_000, 1_001_000, 1_301_000, 0, false}},
		{"a jump ahead by more than a segment keeps the older line", run{Seq: 1, CutBoot: 1000, CutMS: 1_001_000, Anchor: 1},
			append(one, anchor(2, 0, 9_000_000)), 2000, true, &want{2, 1, 2000, 1_001_000, 1_002_000, 0, false}},
		{"a later anchor that was slower does not move the start", run{StartBoot: 500, CutBoot: 500, Anchor: 1},
			append(one, anchor(2, 0, 1_000_030)), 1500, true, &want{1, 2, 1500, 1_000_500, 1_001_530, 0, false}},
		{"a later anchor that was quicker corrects the start", run{StartBoot: 500, CutBoot: 500, Anchor: 1},
			append(one, anchor(2, 0, 995_000)), 1500, true, &want{1, 2, 1500, 995_500, 996_500, 0, false}},
		{"never back to an older anchor", run{Seq: 1, CutBoot: 1000, CutMS: 1_001_000, Anchor: 2}, one, 2000, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run.runKey = key
			seg := c.run.next(c.anchors, c.now, c.cut)
			var got *want
			if seg != nil {
				got = &want{seg.Seq, seg.Anchor, seg.BootEndMS, seg.StartMS, seg.EndMS, seg.EnergyMJ, seg.Final}
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEnergyCountersThatGoDownWereReset(t *testing.T) {
	t.Parallel()
	r := &run{Counters: map[string]int64{"a": 100}}
	for i, c := range []map[string]int64{{"a": 150, "b": 9000}, {"a": 20}, {"b": 9010}, nil} {
		r.tick(Tick{BootMS: int64(i), Counters: c})
	}
	if r.Energy != 50+20+10 {
		t.Errorf("energy %d, want 80: a rose by 50 and was reset to 20, b was first seen at 9000", r.Energy)
	}
}
