package metering

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
)

var bigInts = cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })

// history is one lease's whole story: what its host signed, and what its cluster's windows were.
type history struct {
	segments []Interval
	windows  []Window // final
	terms    Terms
}

// oracle returns what a history costs, counted the plain way: cut time at every boundary there is, and for each piece
// ask whether any segment, any window and the life cover it. It shares nothing with the code it judges.
func oracle(segments [][2]int64, windows [][2]int64, life [2]int64, prices [][2]int64,
	ppm int64) (posted, host *big.Int, ms int64) {
	cuts := map[int64]bool{life[0]: true, life[1]: true}
	for _, list := range [][][2]int64{segments, windows} {
		for _, i := range list {
			cuts[i[0]], cuts[i[1]] = true, true
		}
	}
	for _, p := range prices {
		cuts[p[0]] = true
	}
	var at []int64
	for c := range cuts {
		at = append(at, c)
	}
	slices.Sort(at)
	covers := func(list [][2]int64, from int64) bool {
		for _, i := range list {
			if i[0] <= from && from < i[1] {
				return true
			}
		}
		return false
	}
	sum := new(big.Int)
	for k := 0; k+1 < len(at); k++ {
		from, to := at[k], at[k+1]
		if from < life[0] || from >= life[1] || !covers(segments, from) || !covers(windows, from) {
			continue
		}
		rate := prices[0][1]
		for _, p := range prices[1:] {
			if p[0] <= from {
				rate = p[1]
			}
		}
		ms += to - from
		sum.Add(sum, new(big.Int).Mul(big.NewInt(rate), big.NewInt(to-from)))
	}
	posted = new(big.Int).Div(sum, big.NewInt(3600))
	host = new(big.Int).Div(new(big.Int).Mul(posted, big.NewInt(ppm)), big.NewInt(1_000_000))
	return posted, host, ms
}

// judge compares a meter with the oracle's view of the same facts.
func judge(t *testing.T, m Meter, segments []Interval, windows []Window, terms Terms) {
	t.Helper()
	var s, w, p [][2]int64
	for _, i := range segments {
		s = append(s, [2]int64{i.Start, i.End})
	}
	for _, x := range windows {
		end := x.ConfirmedMS
		if x.ClosedMS != 0 {
			end = x.ClosedMS
		}
		w = append(w, [2]int64{x.OpenedMS, end})
	}
	for _, x := range terms.Prices {
		p = append(p, [2]int64{x.FromMS, int64(x.Rate)})
	}
	posted, host, ms := oracle(s, w, [2]int64{terms.Life.Start, terms.Life.End}, p, terms.SharePPM)
	if posted.Cmp(big.NewInt(int64(m.Posted))) != 0 || host.Cmp(big.NewInt(int64(m.HostPosted))) != 0 ||
		ms != m.PostedBilledMS {
		t.Fatalf("charged %d (host %d) for %d ms, the oracle %s (host %s) for %d ms\nsegments %v\nwindows %v\nterms %+v",
			m.Posted, m.HostPosted, m.PostedBilledMS, posted, host, ms, segments, windows, terms)
	}
}

const base = 1_760_000_000_000

func randomHistory(r *rand.Rand) history {
	var h history
	span := int64(1+r.IntN(4*3600)) * 1000
	// Windows one after the other, some touching, some empty.
	for at := int64(base); at < base+span; {
		open := at + r.Int64N(60_000)*int64(r.IntN(2))
		end := open + r.Int64N(span/2+1)
		w := Window{OpenedMS: open, ConfirmedMS: end, ClosedMS: end}
		if r.IntN(3) == 0 {
			w.ConfirmedMS = open + r.Int64N(end-open+1)
		}
		h.windows = append(h.windows, w)
		at = end
	}
	if r.IntN(2) == 0 {
		h.windows[len(h.windows)-1].ClosedMS = 0
	}
	// Boots that abut inside and overlap or leave gaps between, in segments of up to 300 s, some missing for good.
	for at := int64(base) - r.Int64N(60_000); at < base+span; {
		boot := at + 1 + r.Int64N(span)
		for at < boot {
			end := min(boot, at+1+r.Int64N(300_000))
			if r.IntN(20) != 0 {
				h.segments = append(h.segments, Interval{Start: at, End: end})
			}
			at = end
		}
		at += r.Int64N(240_000) - 120_000
	}
	h.terms = Terms{
		Life:     Interval{Start: base - 10_000, End: base + span},
		Prices:   []Price{{0, money.Micro(r.Int64N(40_000_000))}},
		SharePPM: r.Int64N(1_000_001),
	}
	if r.IntN(2) == 0 {
		h.terms.Life.End = base + r.Int64N(2*span)
	}
	if r.IntN(3) == 0 {
		h.terms.Prices = append(h.terms.Prices, Price{base + r.Int64N(span), money.Micro(r.Int64N(40_000_000))})
	}
	return h
}

// grown returns the windows as they were at an earlier moment: those that had opened by then, the last perhaps still
// open.
func grown(windows []Window, r *rand.Rand, seen []Window) []Window {
	out := slices.Clone(seen)
	if n := len(out); n > 0 && out[n-1] != windows[n-1] {
		w, full := &out[n-1], windows[n-1]
		if r.IntN(2) == 0 {
			*w = full
		} else {
			w.ConfirmedMS += r.Int64N(full.ConfirmedMS - w.ConfirmedMS + 1)
		}
		return out
	}
	if len(out) < len(windows) {
		w := windows[len(out)]
		out = append(out, Window{OpenedMS: w.OpenedMS, ConfirmedMS: w.OpenedMS + r.Int64N(w.ConfirmedMS-w.OpenedMS+1)})
	}
	return out
}

// play feeds a history in a random order, in random batches, with repeats, while the windows grow; after every batch
// the meter must agree with the oracle and nothing may have been taken back.
func play(t *testing.T, h history, r *rand.Rand) Meter {
	t.Helper()
	m := Meter{Numerator: new(big.Int)}
	queue := slices.Clone(h.segments)
	for range r.IntN(len(queue) + 1) {
		queue = append(queue, h.segments[r.IntN(len(h.segments))])
	}
	r.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
	var known []Interval
	var windows []Window
	step := func(batch []Interval) {
		known = append(known, batch...)
		next, p := Charge(m, batch, windows, h.terms)
		if p.Renter < 0 || p.Host < 0 || p.Fee < 0 || p.BilledMS < 0 || p.Renter != p.Host+p.Fee {
			t.Fatalf("posting %+v", p)
		}
		if next.Posted != m.Posted+p.Renter || next.HostPosted != m.HostPosted+p.Host {
			t.Fatalf("meter %+v does not add up with %+v", next, p)
		}
		m = next
		judge(t, m, known, windows, h.terms)
	}
	for len(queue) > 0 {
		n := 1 + r.IntN(len(queue))
		if r.IntN(2) == 0 {
			n = min(n, 3)
		}
		if r.IntN(3) == 0 {
			windows = grown(h.windows, r, windows)
		}
		step(queue[:n])
		queue = queue[n:]
	}
	windows = h.windows
	step(nil)
	return m
}

// Billed = |∪ segments ∩ windows|, renter = host + fee, and any permutation, duplication, batching or replay charges
// the same. Millions of seconds of rental in every run.
func TestCharge_ExactInAnyOrder(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var seconds int64
	for seconds < 4_000_000 {
		h := randomHistory(r)
		if len(h.segments) == 0 {
			continue
		}
		first := play(t, h, r)
		seconds += first.PostedBilledMS / 1000
		if diff := cmp.Diff(first, play(t, h, r), bigInts); diff != "" {
			t.Fatalf("another order charges differently: %s\n%+v", diff, h)
		}
		// A replay of everything adds nothing.
		again, p := Charge(first, h.segments, h.windows, h.terms)
		if p != (Posting{}) {
			t.Fatalf("a replay charged %+v", p)
		}
		if diff := cmp.Diff(first, again, bigInts); diff != "" {
			t.Fatal(diff)
		}
	}
}

// A year of abutting segments keeps the meter one fragment small.
func TestMeter_StaysSmall(t *testing.T) {
	t.Parallel()
	m := Meter{Numerator: new(big.Int)}
	terms := Terms{Life: Interval{Start: base, End: forever}, Prices: []Price{{0, 25_920_000}}, SharePPM: 850_000}
	const n = 365 * 24 * 12
	for k := range int64(n) {
		end := base + (k+1)*300_000
		m, _ = Charge(m, []Interval{{
			Start: end - 300_000,
			End:   end,
		}}, []Window{{OpenedMS: base, ConfirmedMS: end - 7000}}, terms)
		if len(m.Proven) > 1 {
			t.Fatalf("%d fragments after %d segments", len(m.Proven), k)
		}
	}
	if want := money.CostOf(25_920_000, n*300_000-7000); m.Posted != want {
		t.Fatalf("posted %s, want %s", m.Posted, want)
	}
}

// TestMeter_SetsStoredWhole reads a stored set as PostgreSQL hands it back.
func TestMeter_SetsStoredWhole(t *testing.T) {
	t.Parallel()
	a := SetOf(Interval{Start: 30, End: 40}, Interval{Start: 0, End: 10}, Interval{Start: -9, End: -3})
	if diff := cmp.Diff(a, interval.FromFlat(readLiteral(t, literal(a)))); diff != "" {
		t.Error(diff)
	}
}

// readLiteral reads a bigint[] as PostgreSQL would.
func readLiteral(t *testing.T, s string) (out []int64) {
	t.Helper()
	if err := pgtype.NewMap().Scan(pgtype.Int8ArrayOID, pgtype.TextFormatCode, []byte(s), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
