package model

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/interval"
)

// message is a report (good until at) or a signed segment (its end is at) of one rank. Times are ms.
type message struct {
	rank         int
	at, received int64
	segment      bool
	up           interval.Set         // attested or signed
	deaf         map[int]interval.Set // what the rank had noticed by then, from the beginning
}

// hearsay is one run as it becomes known.
type hearsay struct {
	run      interval.Span
	ranks    int
	gaps     interval.Set
	messages []message // by moment of receipt
}

// TestWhatIsPostedStands delivers the reports and segments of random runs one by one. What Decide makes billable below
// Posted must stay billable, whatever arrives later.
func TestWhatIsPostedStands(t *testing.T) {
	t.Parallel()
	start := rand.Uint64()
	t.Logf("seed %d", start)
	posted := 0
	for i := range uint64(300) {
		rnd := rand.New(rand.NewPCG(start+i, 4))
		h := randomHearsay(rnd)
		end, _ := h.known(len(h.messages))
		for n := 1; n < len(h.messages); n += 1 + rnd.IntN(4) {
			now, progress := h.known(n)
			below := interval.Span{Start: h.run.Start, End: fairness.Posted(progress)}
			early := now.Billable.Clip(below)
			if gone := early.Minus(end.Billable); len(gone) > 0 {
				t.Fatalf("run %d: after message %d %v was billable, below %d; it is not in the end", start+i, n, gone, below.End)
			}
			posted += len(early)
		}
	}
	if posted == 0 {
		t.Fatal("nothing was ever posted: the test proves nothing")
	}
}

// randomHearsay is a run of five minutes with ranks that go down, lose each other and fall silent, and a platform that
// is deaf now and then.
func randomHearsay(rnd *rand.Rand) hearsay {
	h := hearsay{run: interval.Span{Start: 0, End: 300_000}, ranks: 2 + rnd.IntN(3)}
	some := func(p float64, least, most int64) interval.Set { // stretches of the run
		var in []interval.Span
		for rnd.Float64() < p {
			from := rnd.Int64N(h.run.End)
			in = append(in, interval.Span{Start: from, End: min(h.run.End, from+least+rnd.Int64N(most-least))})
		}
		return interval.Of(in...)
	}
	h.gaps = some(.3, 10_000, 100_000)
	for k := range h.ranks {
		up := interval.Of(h.run).Minus(some(.3, 1000, 60_000))
		cut := some(.3, 1000, 80_000) // no report gets through
		deaf := map[int]interval.Set{}
		for j := range h.ranks {
			if j != k {
				deaf[j] = some(.4, fairness.PeerSilence.Milliseconds(), 60_000)
			}
		}
		noticed := func(at int64) map[int]interval.Set { // a deafness is noticed after PeerSilence
			out := map[int]interval.Set{}
			for j, d := range deaf {
				var in []interval.Span
				for _, s := range d {
					if s.Start+fairness.PeerSilence.Milliseconds() <= at {
						in = append(in, interval.Span{Start: s.Start, End: min(s.End, at)})
					}
				}
				out[j] = interval.Of(in...)
			}
			return out
		}
		goodSince := int64(0)
		for at := rnd.Int64N(15_000); at <= h.run.End; at += 10_000 + rnd.Int64N(6000) {
			if !up.Contains(at) {
				goodSince = -1
			} else if goodSince < 0 {
				goodSince = at
			}
			if h.gaps.Contains(at) || cut.Contains(at) {
				continue
			}
			m := message{rank: k, at: at, received: at, deaf: noticed(at)}
			if goodSince >= 0 {
				m.up = up.Clip(interval.Span{Start: goodSince, End: at})
			}
			h.messages = append(h.messages, m)
		}
		late := int64(0) // a journal is sent in order
		for at := int64(0); at < h.run.End; {
			next := min(h.run.End, at+5000+rnd.Int64N(60_000))
			for late = max(late, next); h.gaps.Contains(late) || cut.Contains(late); late += 1000 {
			}
			late += rnd.Int64N(20_000) * rnd.Int64N(2)
			h.messages = append(h.messages, message{
				rank:     k,
				at:       next,
				received: late,
				segment:  true,
				up:       up.Clip(interval.Span{Start: at, End: next}),
				deaf:     noticed(next),
			})
			at = next
		}
	}
	slices.SortStableFunc(h.messages, func(a, b message) int { return int(a.received - b.received) })
	return h
}

// known is what the first n messages come to.
func (h hearsay) known(n int) (fairness.Verdict, []fairness.Progress) {
	f := fairness.Facts{Run: h.run, Gaps: h.gaps, Ranks: make([]fairness.Rank, h.ranks)}
	progress := make([]fairness.Progress, h.ranks)
	latest := make([]int64, h.ranks) // moment of the last report
	now := h.messages[n-1].received
	missing := func(k int, until int64) {
		if until-latest[k] > 35_000 {
			f.Ranks[k].Silent = f.Ranks[k].Silent.Union(interval.Set{{Start: latest[k], End: until}})
		}
	}
	for _, m := range h.messages[:n] {
		r, p := &f.Ranks[m.rank], &progress[m.rank]
		if r.Deaf == nil {
			r.Deaf = map[int]interval.Set{}
		}
		for j, d := range m.deaf {
			r.Deaf[j] = r.Deaf[j].Union(d)
		}
		if m.segment {
			r.Signed, p.Final = r.Signed.Union(m.up), m.at == h.run.End
			continue
		}
		missing(m.rank, m.at)
		r.Attested, latest[m.rank] = r.Attested.Union(m.up), m.at
		if len(m.up) > 0 {
			p.ReportedMS = m.at
		}
	}
	for k := range f.Ranks {
		if !progress[k].Final {
			missing(k, min(now, h.run.End))
		}
	}
	return fairness.Decide(f), progress
}
