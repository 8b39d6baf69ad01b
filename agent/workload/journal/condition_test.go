package journal

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
)

// conditionOf is what a run's segments say, by the boot's clock.
type conditionOf struct {
	From, To int64
	Up, Tail bool
	Deaf     []agentapi.DeafSpan
}

func conditionBy(segs []agentapi.Segment) (out []conditionOf) {
	for _, s := range segs {
		x := conditionOf{From: s.StartMS - 1_000_000, To: s.EndMS - 1_000_000, Up: s.WasUp()}
		if s.Facts != nil {
			x.Tail, x.Deaf = s.Facts.Tail, s.Facts.Deaf
		}
		out = append(out, x)
	}
	return out
}

// A run's segments are cut at each change of its condition, and each states what held within it. A silence is signed
// from its last byte on, although it is noticed later, and in pieces that abut. A journal that was reopened continues.
func TestSegmentsSayHowARunWas(t *testing.T) {
	t.Parallel()
	dir, ref := t.TempDir(), agentapi.LeaseRef{Lease: "ls_1", Epoch: 1}
	j := open(t, dir, config("b"))
	ok(t, j.SetAnchor(agentapi.Anchor{BootID: "b", Number: 1, ServerMS: 1_000_000}))
	ok(t, j.Start(ref, 1000, nil))
	note := func(at int64, up, tail bool, deaf ...agentapi.DeafSpan) {
		t.Helper()
		ok(t, j.Note(ref, Condition{SeenBootMS: at, Up: up, Tail: tail, Deaf: deaf}))
	}
	note(2000, true, false) // as it was: no cut
	note(20_000, true, false, agentapi.DeafSpan{Rank: 1, FromBootMS: 12_000})
	note(22_000, true, false, agentapi.DeafSpan{Rank: 1, FromBootMS: 12_004})                   // the same
	note(30_000, true, false, agentapi.DeafSpan{Rank: 1, FromBootMS: 12_000, ToBootMS: 29_000}) // it is over
	note(32_000, true, false, agentapi.DeafSpan{Rank: 1, FromBootMS: 12_000, ToBootMS: 29_003}) // reported twice
	// not seen: down from the last sign of life on
	note(0, false, false)
	ok(t, j.Close())
	j = open(t, dir, config("b"))
	note(40_000, true, false)
	note(50_000, true, false, agentapi.DeafSpan{Rank: 2, FromBootMS: 38_000}) // before the cut: it is noticed late
	note(60_000, true, true, agentapi.DeafSpan{Rank: 2, FromBootMS: 38_000, ToBootMS: 55_000})
	ok(t, j.End(ref, 65_000))
	want := []conditionOf{
		{From: 1000, To: 20_000, Up: true, Deaf: []agentapi.DeafSpan{{Rank: 1, FromBootMS: 12_000, ToBootMS: 20_000}}},
		{From: 20_000, To: 30_000, Up: true, Deaf: []agentapi.DeafSpan{{Rank: 1, FromBootMS: 20_000, ToBootMS: 29_000}}},
		{From: 30_000, To: 40_000},
		{From: 40_000, To: 50_000, Up: true, Deaf: []agentapi.DeafSpan{{Rank: 2, FromBootMS: 38_000, ToBootMS: 50_000}}},
		{From: 50_000, To: 60_000, Up: true, Deaf: []agentapi.DeafSpan{{Rank: 2, FromBootMS: 50_000, ToBootMS: 55_000}}},
		{From: 60_000, To: 65_000, Up: true, Tail: true},
	}
	segs := j.Pending(100)
	if diff := cmp.Diff(want, conditionBy(segs)); diff != "" {
		t.Error(diff)
	}
	checkChain(t, segs, 1)
	if segs[0].Facts == nil || segs[2].Facts == nil {
		t.Fatal("facts are missing")
	}
}

// A healthy run that receives from all other ranks signs what an agent of protocol 1 signed.
func TestAWellRunHasNoFacts(t *testing.T) {
	t.Parallel()
	ref := agentapi.LeaseRef{Lease: "ls_1", Epoch: 1}
	j := open(t, t.TempDir(), config("b"))
	ok(t, j.SetAnchor(agentapi.Anchor{BootID: "b", Number: 1, ServerMS: 1_000_000}))
	ok(t, j.Start(ref, 0, nil))
	for boot := int64(0); boot < 700_000; boot += 5000 {
		tick(t, j, ref, boot)
		ok(t, j.Note(ref, Condition{SeenBootMS: boot, Up: true}))
	}
	segs := j.Pending(100)
	if len(segs) != 2 || segs[0].Facts != nil || segs[1].Facts != nil {
		t.Errorf("%+v", segs)
	}
}
