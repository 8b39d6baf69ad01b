package metering

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/billproof"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// provenStory returns a settled rental and its proof as a file. Its segments are signed alone and in a list, and one
// has facts.
func provenStory(t *testing.T) (*world, []byte) {
	t.Helper()
	w := newWorld(t, newDB(t), 100*money.Unit, 25_920_000, 7_777_777)
	batches, finish := story(w)
	first := &batches[0][0]
	*first = w.signed(*first, agentapi.Facts{
		Up:   true,
		Deaf: []agentapi.DeafSpan{{Rank: 1, FromBootMS: first.EndMS - 9000, ToBootMS: first.EndMS - 1000}},
	})
	w.ingest(batches[0]...)
	w.deliver(w.list(slices.Concat(batches[1:]...)...))
	finish()
	w.settle()
	if _, err := ledger.Link(t.Context(), w.DB, 0); err != nil {
		t.Fatal(err)
	}
	f, err := NewLeases(w.DB).ClusterProof(t.Context(), w.cluster)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return w, b
}

func verdict(t *testing.T, b []byte) (billproof.Verdict, error) {
	t.Helper()
	var f billproof.File
	if err := json.Unmarshal(b, &f); err != nil {
		return billproof.Verdict{}, err
	}
	return billproof.Verify(f), nil
}

func TestProof_Holds(t *testing.T) {
	t.Parallel()
	w, b := provenStory(t)
	v, err := verdict(t, b)
	if err != nil || len(v.Problems) > 0 || len(v.Leases) != 2 || v.Segments == 0 || v.Waiting != 0 || v.Head == nil {
		t.Fatalf("%v: %+v", err, v)
	}
	u := w.usage()
	if v.Leases[0].Renter+v.Leases[1].Renter != u.Posted || v.Leases[0].NotBooked+v.Leases[1].NotBooked != 0 {
		t.Fatalf("%+v, posted %s", v.Leases, u.Posted)
	}
	mustEqual(t, "host's part", v.Leases[0].Host+v.Leases[1].Host, w.money().Host)
	// One lease, for its renter and the operator; no one else.
	for _, org := range []id.Org{w.renter, w.operator} {
		f, err := NewLeases(w.DB).LeaseProof(t.Context(), org, w.leases[1])
		if err != nil || len(f.Leases) != 1 {
			t.Fatal(err, len(f.Leases))
		}
		if v := billproof.Verify(f); len(v.Problems) > 0 {
			t.Fatal(v.Problems)
		}
	}
	if _, err := NewLeases(w.DB).LeaseProof(t.Context(), id.New[id.Org](), w.leases[1]); !fault.Is(err, fault.NotFound) {
		t.Fatal(err)
	}
}

// What is proven while the cluster runs may be more than what is booked, never less; also of a node that costs nothing.
func TestProof_RunningCluster(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), 3_600_000, 0)
	w.ingest(w.segment(w.leases[1], 1, t0, t0+100_000, false))
	l := w.leases[0]
	for _, c := range []struct {
		segs      []agentapi.Segment
		notBooked int64 // ms
	}{
		{w.segments(l, 1, t0, t0+900_000, false), 0},
		{w.segments(l, 4, t0+900_000, t0+1_600_000, false), 700_000},
	} {
		w.ingest(c.segs...)
		f, err := NewLeases(w.DB).ClusterProof(t.Context(), w.cluster)
		if err != nil {
			t.Fatal(err)
		}
		through := c.segs[len(c.segs)-1].EndMS - t0
		v := billproof.Verify(f)
		if len(v.Problems) > 0 || v.Waiting == 0 || v.Leases[0].Renter != money.CostOf(3_600_000, through) ||
			v.Leases[0].NotBooked != money.CostOf(3_600_000, c.notBooked) {
			t.Fatalf("%+v", v)
		}
	}
}

// Every value in a proof is changed in turn: each change is noticed, but for labels and for limits that cut nothing
// off.
func TestProof_ForgeriesDetected(t *testing.T) {
	t.Parallel()
	_, b := provenStory(t)
	var tree any
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		t.Fatal(err)
	}
	noticed, tried := map[string]bool{}, map[string]int{}
	walk(tree, "", nil, func(path string, forged any, set func(any), old any) {
		set(forged)
		defer set(old)
		tried[path]++
		raw, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := verdict(t, raw); err != nil || len(v.Problems) > 0 {
			noticed[path] = true
		}
	})
	var got []string
	for p := range tried {
		if !noticed[p] {
			got = append(got, p)
		}
	}
	sort.Strings(got)
	// The lease lived longer than its windows, and has one price from the beginning.
	want := []string{".cluster", ".leases.from_ms", ".leases.gpus", ".leases.prices.from_ms", ".leases.rank",
		".leases.settled", ".leases.until_ms", ".made_at"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes that go unnoticed: %s", diff)
	}
	if len(tried) < 40 {
		t.Errorf("only %d kinds of value were tried: %v", len(tried), tried)
	}
}

// walk visits every value of a JSON tree with a forgery of it; of long lists the first, one in the middle and the last.
func walk(v any, path string, set func(any), visit func(path string, forged any, set func(any), old any)) {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			walk(e, path+"."+k, func(n any) { x[k] = n }, visit)
		}
	case []any:
		for i, e := range x {
			if slices.Contains([]int{0, len(x) / 2, len(x) - 1}, i) {
				walk(e, path, func(n any) { x[i] = n }, visit)
			}
		}
	case json.Number:
		n, _ := x.Int64()
		visit(path, json.Number(fmt.Sprint(n+1)), set, x)
	case bool:
		visit(path, !x, set, x)
	case string:
		visit(path, forge(x), set, x)
	}
}

// forge changes a text so that it stays of its kind: a byte of a base64 text, a digit, a letter.
func forge(s string) string {
	if b, err := base64.StdEncoding.DecodeString(s); err == nil && len(b) >= 32 {
		b[len(b)/2] ^= 1
		return base64.StdEncoding.EncodeToString(b)
	}
	for i := len(s) - 1; i >= 0; i-- {
		switch c := s[i]; {
		case c >= '0' && c < '9':
			return s[:i] + string(c+1) + s[i+1:]
		case c == '9':
			return s[:i] + "8" + s[i+1:]
		case c == 'x':
			return s[:i] + "y" + s[i+1:]
		}
	}
	return s + "x"
}
