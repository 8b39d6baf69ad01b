package metering

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/billproof"
)

type deafRow struct {
	Lease, Peer int
	From, To    int64
}

// deafRows returns the stored deaf spans, with times after t0.
func (w *world) deafRows(t0 int64) (out []deafRow) {
	w.T.Helper()
	rows, err := w.DB.Pool.Query(w.T.Context(), `SELECT l.rank, d.peer, d.from_ms, d.to_ms FROM deaf_span d JOIN lease l ON
		l.id = d.lease_id
		ORDER BY l.rank, d.peer, d.from_ms`)
	if err != nil {
		w.T.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var r deafRow
		if err := rows.Scan(&r.Lease, &r.Peer, &r.From, &r.To); err != nil {
			w.T.Fatal(err)
		}
		r.From, r.To = r.From-t0, r.To-t0
		out = append(out, r)
	}
	return out
}

// signed signs a segment with facts; deaf spans are by the server's clock here.
func (w *world) signed(s agentapi.Segment, f agentapi.Facts) agentapi.Segment {
	for i := range f.Deaf {
		f.Deaf[i].FromBootMS += w.anchor.BootMS - w.anchor.ServerMS
		f.Deaf[i].ToBootMS += w.anchor.BootMS - w.anchor.ServerMS
	}
	s.Facts = &f
	s.Sign(w.host.String(), w.key)
	return s
}

// What a host signs about peers from which it received nothing is stored once, on PostgreSQL's clock, within its
// segment and about ranks that there are. A proof holds it and verifies, and no one can change it afterwards.
func TestFacts_DeafSpansStoredWithSegment(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), 3_600_000, 3_600_000)
	a := w.signed(w.segment(w.leases[0], 1, t0+100_000, t0+200_000, false), agentapi.Facts{
		Up: true,
		Deaf: []agentapi.DeafSpan{
			{Rank: 0, FromBootMS: t0 + 150_000, ToBootMS: t0 + 160_000}, // itself
			{Rank: 1, FromBootMS: t0 + 10_000, ToBootMS: t0 + 110_000},  // from long before the segment
			{Rank: 1, FromBootMS: t0 + 190_000, ToBootMS: t0 + 200_000},
			{Rank: 7, FromBootMS: t0 + 150_000, ToBootMS: t0 + 160_000}, // no rank of the cluster
		},
	})
	b := w.signed(w.segment(w.leases[1], 1, t0, t0+300_000, true), agentapi.Facts{Up: false, Tail: true})
	for range 2 {
		for _, s := range []agentapi.Segment{a, b} {
			if acks := w.ingest(s); len(acks) != 1 || acks[0].Refused != "" {
				t.Fatalf("%+v", acks)
			}
		}
	}
	want := []deafRow{{0, 1, 92_000, 110_000}, {0, 1, 190_000, 200_000}}
	if diff := cmp.Diff(want, w.deafRows(t0)); diff != "" {
		t.Error(diff)
	}
	var down int
	if err := w.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM usage_segment WHERE NOT up").Scan(&down); err != nil ||
		down != 1 {
		t.Errorf("%d segments say that the rank was not up: %v", down, err)
	}
	f, err := NewLeases(w.DB).ClusterProof(t.Context(), w.cluster)
	if err != nil {
		t.Fatal(err)
	}
	if v := billproof.Verify(f); len(v.Problems) > 0 || f.Version != billproof.Version {
		t.Errorf("version %d: %v", f.Version, v.Problems)
	}
	f.Leases[0].Segments[0].Facts.Deaf[0].ToBootMS--
	if v := billproof.Verify(f); len(v.Problems) == 0 {
		t.Error("changed facts verify")
	}
	for _, sql := range []string{"UPDATE deaf_span SET to_ms = to_ms + 1", "DELETE FROM deaf_span", "TRUNCATE deaf_span"} {
		if _, err := w.DB.Pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s: done", sql)
		}
	}
}

// Facts that are not signed, or that no agent writes, are refused with their segment. A segment without facts is what
// an agent of protocol 1 sends.
func TestFacts_Refused(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), 3_600_000, 3_600_000)
	plain := w.segment(w.leases[0], 1, t0, t0+60_000, false)
	deaf := func(from, to int64) agentapi.Facts {
		return agentapi.Facts{Up: true, Deaf: []agentapi.DeafSpan{{Rank: 1, FromBootMS: t0 + from, ToBootMS: t0 + to}}}
	}
	many := agentapi.Facts{Up: true}
	for i := range int64(agentapi.MaxDeafSpans + 1) {
		many.Deaf = append(many.Deaf, agentapi.DeafSpan{Rank: 1, FromBootMS: t0 + 10*i, ToBootMS: t0 + 10*i + 1})
	}
	huge := deaf(1, 2)
	huge.Deaf[0].Rank = 1 << 40
	unsigned := w.signed(plain, deaf(1000, 2000))
	unsigned.Facts.Deaf[0].ToBootMS++
	for name, c := range map[string]struct {
		s    agentapi.Segment
		want string
	}{
		"changed":          {unsigned, refusedSignature},
		"beyond the end":   {w.signed(plain, deaf(50_000, 60_001)), refusedSignature},
		"backward":         {w.signed(plain, deaf(50_000, 49_000)), refusedSignature},
		"too many":         {w.signed(plain, many), refusedMalformed},
		"an enormous rank": {w.signed(plain, huge), refusedMalformed},
	} {
		if acks := w.ingest(c.s); len(acks) != 1 || acks[0].Refused != c.want {
			t.Errorf("%s: %+v", name, acks)
		}
	}
	if acks := w.ingest(plain); len(acks) != 1 || acks[0].Refused != "" {
		t.Errorf("without facts: %+v", acks)
	}
	if rows := w.deafRows(t0); len(rows) != 0 {
		t.Errorf("stored: %+v", rows)
	}
}
