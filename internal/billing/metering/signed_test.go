package metering

import (
	"crypto/ed25519"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/billproof"
	"github.com/musterhq/muster/internal/money"
)

// list returns the segments signed as a whole by the world's host, and by nothing else.
func (w *world) list(segs ...agentapi.Segment) Delivery {
	w.T.Helper()
	segs = slices.Clone(segs)
	for i := range segs {
		segs[i].Signature = nil
	}
	s := agentapi.SignBatch(w.host.String(), segs, w.key)
	if s == nil {
		w.T.Fatalf("%d segments are no list", len(segs))
	}
	return Delivery{w.host, segs, s}
}

func (w *world) deliver(v Delivery) []agentapi.UsageAck {
	w.T.Helper()
	acks, err := IngestAll(w.T.Context(), w.DB, []Delivery{v})
	if err != nil {
		w.T.Fatal(err)
	}
	return acks[0]
}

// A list that is signed as a whole is as good as segments that are signed one by one: it is taken in once, in whatever
// list it comes again, and a segment of it proves itself without the rest to anyone who may see it.
func TestSigned_ListAsAWhole(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), 3_600_000, 3_600_000)
	a, b := w.segments(w.leases[0], 1, t0, t0+1_500_000, false), w.segments(w.leases[1], 1, t0, t0+1_200_000, false)
	ref := func(n int) agentapi.LeaseRef { return agentapi.LeaseRef{Lease: w.leases[n].String(), Epoch: 1} }
	want := []agentapi.UsageAck{{LeaseRef: ref(0), BootID: boot, Through: 5}, {LeaseRef: ref(1), BootID: boot, Through: 4}}
	if diff := cmp.Diff(want, w.deliver(w.list(slices.Concat(a, b)...))); diff != "" {
		t.Fatal(diff)
	}
	cost := w.usage().Cost
	mustEqual(t, "cost", cost, money.CostOf(3_600_000, 1_500_000)+money.CostOf(3_600_000, 1_200_000))
	// Again: alone, and in another list with one that is new. An agent of an earlier version signs each.
	mustEqual(t, "acknowledged again", len(w.ingest(a...)), 1)
	last := w.segment(w.leases[1], 5, t0+1_200_000, t0+1_500_000, false)
	w.deliver(w.list(slices.Concat(a[2:], b, []agentapi.Segment{last})...))
	mustEqual(t, "cost", w.usage().Cost, cost+money.CostOf(3_600_000, 300_000))
	var lists, within int
	err := w.DB.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM segment_batch), count(*) FROM usage_segment
		WHERE lease_id = ANY($1) AND batch <> 0 AND signature = ''`, idList(w.leases...)).Scan(&lists, &within)
	if err != nil || within != 10 || lists != 2 {
		t.Fatalf("%d segments of %d lists: %v", within, lists, err)
	}
	f, err := NewLeases(w.DB).LeaseProof(t.Context(), w.renter, w.leases[0])
	if err != nil {
		t.Fatal(err)
	}
	v := billproof.Verify(f)
	if len(v.Problems) > 0 || v.Segments != 5 || f.Version != 2 || f.Leases[0].Segments[0].Batch == nil {
		t.Fatalf("version %d: %+v", f.Version, v)
	}
	if raw, err := json.Marshal(f); err != nil || strings.Contains(string(raw), w.leases[1].String()) {
		t.Errorf("the proof names another lease: %v", err)
	}
	// A segment in another's place, and a list with a forged length.
	for _, change := range []func(s *billproof.Segment){
		func(s *billproof.Segment) { s.Batch.Position++ },
		func(s *billproof.Segment) { s.Batch.Size++ },
		func(s *billproof.Segment) { s.Batch.Path = s.Batch.Path[1:] },
		func(s *billproof.Segment) { s.Batch = nil },
		func(s *billproof.Segment) { s.EndMS-- },
	} {
		s := f.Leases[0].Segments[0]
		in := *s.Batch
		s.Batch = &in
		if change(&s); s.SignedBy(w.host.String(), f.Leases[0].HostKeys[0]) {
			t.Errorf("a forgery holds: %+v", s)
		}
	}
	w.ledgerBalances()
}

// Where a list's signature does not hold, each segment's own counts: a list that was changed proves nothing, and takes
// nothing from who signed each.
func TestSigned_ForgedList(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	w, t0 := open(t, d, 3_600_000)
	other, _ := open(t, d, 3_600_000)
	segs := w.segments(w.leases[0], 1, t0, t0+2_700_000, false)
	good := w.list(segs...)
	_, stranger, _ := ed25519.GenerateKey(nil)
	few := segs[:agentapi.MinBatch-1]
	changed := slices.Clone(good.Segments)
	changed[3].EnergyMJ++
	for name, v := range map[string]Delivery{
		"changed":        {w.host, changed, good.Signature},
		"shortened":      {w.host, good.Segments[:8], good.Signature},
		"another order":  {w.host, append(slices.Clone(good.Segments[1:]), good.Segments[0]), good.Signature},
		"another's key":  {w.host, good.Segments, agentapi.SignBatch(w.host.String(), good.Segments, stranger)},
		"another's name": {w.host, good.Segments, agentapi.SignBatch(other.host.String(), good.Segments, w.key)},
		"another's list": {w.host, good.Segments, other.list(other.segments(other.leases[0], 1, t0, t0+2_700_000,
			false)...).Signature},
		"one segment's": {w.host, good.Segments, segs[0].Signature},
		"not signed":    {w.host, good.Segments, nil},
		"short":         {w.host, good.Segments, good.Signature[:63]},
	} {
		acks := w.deliver(v)
		if len(acks) != len(v.Segments) || slices.ContainsFunc(acks,
			func(a agentapi.UsageAck) bool { return a.Refused != refusedSignature }) {
			t.Errorf("%s: %+v", name, acks)
		}
	}
	mustEqual(t, "cost", w.usage().Cost, 0)
	// Of a list below the bound each must be signed.
	if acks := w.deliver(Delivery{w.host, few, good.Signature}); len(acks) != 1 || acks[0].Refused != "" {
		t.Errorf("%+v", acks)
	}
	w.deliver(Delivery{w.host, segs, changedByte(good.Signature)})
	mustEqual(t, "cost", w.usage().Cost, money.CostOf(3_600_000, 2_700_000))
	f, err := NewLeases(d).ClusterProof(t.Context(), w.cluster)
	if err != nil || f.Version != 1 {
		t.Fatal(f.Version, err)
	}
	if v := billproof.Verify(f); len(v.Problems) > 0 || v.Segments != len(segs) {
		t.Errorf("%+v", v)
	}
}

func changedByte(b []byte) []byte {
	b = slices.Clone(b)
	b[7] ^= 1
	return b
}

// What a list holds is judged segment by segment: one that is refused, or differs from what was accepted before,
// leaves the others as they are, and they prove themselves without it.
func TestSigned_BadSegments(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), 3_600_000)
	l := w.leases[0]
	w.ingest(w.segment(l, 2, t0+300_000, t0+600_000, false))
	segs := w.segments(l, 1, t0, t0+2_400_000, false)
	segs[1].EnergyMJ++                                                                // a conflict
	segs = append(segs, w.segment(l, 9, w.now+100_000_000, w.now+100_060_000, false)) // of the future
	acks := w.deliver(w.list(segs...))
	ref := agentapi.LeaseRef{Lease: l.String(), Epoch: 1}
	want := []agentapi.UsageAck{{
		LeaseRef: ref,
		BootID:   boot,
		Through:  8,
	}, {LeaseRef: ref, BootID: boot, Through: 2, Refused: refusedConflict},
		{LeaseRef: ref, BootID: boot, Through: 9, Refused: refusedFuture}}
	if diff := cmp.Diff(want, acks); diff != "" {
		t.Fatal(diff)
	}
	mustEqual(t, "cost", w.usage().Cost, money.CostOf(3_600_000, 2_400_000))
	f, err := NewLeases(w.DB).ClusterProof(t.Context(), w.cluster)
	if err != nil {
		t.Fatal(err)
	}
	if v := billproof.Verify(f); len(v.Problems) > 0 || v.Segments != 8 {
		t.Errorf("%+v", v)
	}
}
