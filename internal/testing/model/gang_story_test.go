package model

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
)

// gangStory is everything that is true about a gang's run. Moments are ms after from.
type gangStory struct {
	from  int64 // unix ms
	ticks int64 // to the end of the run
	ranks []rankStory
	// gap is an outage of the platform with its settle-in; empty: there was none.
	gap    interval.Span
	faults bool // of hosts; without, every rank proves its whole run
}

type rankStory struct {
	start, exit int64
	reports     []reportStory // in order; the last reports the exit
	segments    []interval.Span
	deaf        map[int]interval.Span // when its host receives nothing from another rank
	inTime      bool                  // it reports that at once; otherwise it is cut off from the platform meanwhile
}

type reportStory struct {
	at   int64
	good bool
}

func (s gangStory) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "gap %v, end %d", s.gap, s.ticks)
	for k, r := range s.ranks {
		fmt.Fprintf(&b, "\nrank %d: %d to %d, signed %v, deaf %v, in time %v, reports", k, r.start, r.exit, r.segments,
			r.deaf, r.inTime)
		for _, p := range r.reports {
			fmt.Fprintf(&b, " %d", p.at)
			if !p.good {
				b.WriteString("(bad)")
			}
		}
	}
	return b.String()
}

// received is the story as it would be if the platform had received every report.
func (s gangStory) received() gangStory {
	s.gap, s.ranks = interval.Span{}, slices.Clone(s.ranks)
	for k := range s.ranks {
		r := &s.ranks[k]
		r.reports = []reportStory{r.reports[0]}
		for at := r.reports[0].at + 10_000; at < r.exit; at += 10_000 {
			r.reports = append(r.reports, reportStory{at, true})
		}
		r.reports = append(r.reports, reportStory{r.exit, true})
	}
	return s
}

// newStory makes up a run of two to four minutes that ended two seconds ago. With an outage the platform misses
// reports. Faults of hosts are that they say that they are not well, report nothing for a while, or sign nothing for a
// while.
func newStory(rnd *rand.Rand, n int, now int64, outage, faults bool) gangStory {
	length := 120_000 + rnd.Int64N(120_000)
	s := gangStory{from: now - 2_000 - length, faults: faults}
	if outage {
		s.gap.Start = rnd.Int64N(length - 40_000)
		s.gap.End = s.gap.Start + 20_000 + rnd.Int64N(60_000) + 120_000
	}
	for range n {
		r := rankStory{start: rnd.Int64N(4_000), exit: length - rnd.Int64N(3_000)}
		s.ticks = max(s.ticks, r.exit)
		bad, quiet := interval.Span{}, interval.Span{}
		if faults && rnd.IntN(2) == 0 {
			bad.Start = 10_000 + rnd.Int64N(length/2)
			bad.End = bad.Start + rnd.Int64N(30_000)
		}
		if faults && rnd.IntN(2) == 0 {
			quiet.Start = rnd.Int64N(length - 30_000)
			quiet.End = quiet.Start + 30_000 + rnd.Int64N(60_000)
			if rnd.IntN(3) == 0 { // until the exit
				quiet = interval.Span{Start: length - 40_000 - rnd.Int64N(40_000), End: length}
			}
		}
		missed := interval.Span{}
		if outage {
			missed = interval.Span{Start: s.gap.Start, End: s.gap.End - 120_000 + rnd.Int64N(30_000)}
		}
		for at := r.start + rnd.Int64N(2_000); at < r.exit; at += 8_000 + rnd.Int64N(7_000) {
			if len(r.reports) > 0 && (at >= quiet.Start && at < quiet.End || at >= missed.Start && at < missed.End) {
				continue
			}
			r.reports = append(r.reports, reportStory{at, len(r.reports) == 0 || at < bad.Start || at >= bad.End})
		}
		r.reports = append(r.reports, reportStory{r.exit, true})
		for at := r.start; at < r.exit; {
			end := min(r.exit, at+1_000+rnd.Int64N(60_000))
			r.segments = append(r.segments, interval.Span{Start: at, End: end})
			at = end
			if faults && (rnd.IntN(4) == 0 || at > quiet.Start && at < quiet.End && rnd.IntN(2) == 0) {
				at += rnd.Int64N(50_000) // the agent died and signed nothing
			}
		}
		s.ranks = append(s.ranks, r)
	}
	if faults && rnd.IntN(3) > 0 {
		s.deafen(rnd, length)
	}
	return s
}

// deafen cuts one or both directions between two ranks for some seconds. Neither reports meanwhile, and both do right
// after it.
func (s *gangStory) deafen(rnd *rand.Rand, length int64) {
	i := rnd.IntN(len(s.ranks))
	j := (i + 1 + rnd.IntN(len(s.ranks)-1)) % len(s.ranks)
	start := 20_000 + rnd.Int64N(length-80_000)
	end := start + 8_000 + rnd.Int64N(8_000)
	for n, pair := range [][2]int{{i, j}, {j, i}} {
		if n == 1 && rnd.IntN(4) == 0 {
			break // one voice
		}
		r := &s.ranks[pair[0]]
		d := interval.Span{Start: start + rnd.Int64N(1500), End: end + rnd.Int64N(1500)}
		r.deaf, r.inTime = map[int]interval.Span{pair[1]: d}, rnd.IntN(2) == 0
		var cut []interval.Span
		for _, p := range r.segments {
			if p.Start < d.End && d.End < p.End {
				cut = append(cut, interval.Span{Start: p.Start, End: d.End})
				p.Start = d.End
			}
			cut = append(cut, p)
		}
		r.segments = cut
		var reports []reportStory
		for _, p := range r.reports {
			if len(reports) > 0 && p.at >= d.Start && p.at <= d.End+500 {
				continue
			}
			if len(reports) > 0 && reports[len(reports)-1].at < d.Start && p.at > d.End+500 &&
				p.at-reports[len(reports)-1].at <= lostAfter {
				reports = append(reports, reportStory{d.End + 500, reports[len(reports)-1].good})
			}
			reports = append(reports, p)
		}
		r.reports = reports
	}
}

// deafSpans are the silences that a host signs: only with its segments.
func (r rankStory) deafSpans(peer int) interval.Set {
	return interval.Of(r.deaf[peer]).Intersect(interval.Of(r.segments...))
}

// signedUp is for which time segments say themselves that the rank was up: those with facts. It counts whatever its
// reports say.
func (r rankStory) signedUp() interval.Set {
	var out []interval.Span
	for _, p := range r.segments {
		for _, d := range r.deaf {
			if d.And(p).Len() > 0 {
				out = append(out, p)
			}
		}
	}
	return interval.Of(out...)
}

// silences is when the platform knows that a host was silent to it: reports were missing, or reported deafness too
// late.
func (r rankStory) silences() (out []interval.Span) {
	for i, p := range r.reports[1:] {
		if before := r.reports[i].at; p.at-before > lostAfter {
			out = append(out, interval.Span{Start: before, End: p.at})
		}
	}
	for peer := range r.deaf {
		if spans := r.deafSpans(peer); len(spans) > 0 && !r.inTime {
			out = append(out, interval.Span{Start: spans[0].Start, End: day})
		}
	}
	return out
}

// outcome is what a gang's run came to.
type outcome struct {
	windows   interval.Set
	suspended map[string]interval.Set // by class and culprits
	bills     [][3]int64              // by rank: ms, renter's and host's amounts
	owed      []string
}

func (o outcome) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "windows %v", o.windows)
	for _, key := range slices.Sorted(maps.Keys(o.suspended)) {
		if len(o.suspended[key]) > 0 {
			fmt.Fprintf(&b, "\n%s %v", key, o.suspended[key])
		}
	}
	slices.Sort(o.owed)
	fmt.Fprintf(&b, "\nbills %v\nowed %s", o.bills, strings.Join(o.owed, "; "))
	return b.String()
}

// begin is when the last rank has started.
func (s gangStory) begin() (ms int64) {
	for _, r := range s.ranks {
		ms = max(ms, r.start)
	}
	return ms
}

// oracle is what the rule says of the story, by the oracle of this package.
func (s gangStory) oracle(f *field, leases []id.Lease) string {
	f.t.Helper()
	begin := s.begin()
	g := gang{from: s.from + begin, ticks: int(s.ticks - begin), forUndecided: 500_000, forAll: 1_000_000}
	set := func(spans ...interval.Span) bits {
		out := make(bits, g.ticks)
		for _, p := range interval.Of(spans...).Clip(interval.Span{Start: begin, End: s.ticks}) {
			for t := p.Start; t < p.End; t++ {
				out[t-begin] = true
			}
		}
		return out
	}
	g.gap, g.written = set(s.gap), set()
	for k, r := range s.ranks {
		of := gangRank{operator: k, required: set(interval.Span{Start: 0, End: s.ticks}), silent: set(), relaySilent: set()}
		f.must(f.d.Pool.QueryRow(f.t.Context(), `SELECT p.rate, b.srate, l.host_share_ppm, b.reserved FROM lease l JOIN
			lease_price p ON p.lease_id = l.id
			JOIN lease_bond b ON b.lease_id = l.id WHERE l.id = $1`, leases[k]).Scan(&of.rate, &of.standby, &of.ppm, &of.bond))
		attested, unwell := r.attested()
		unwell = interval.Of(unwell...).Minus(r.signedUp())
		of.attested = set(append(attested, interval.Span{Start: r.exit, End: s.ticks})...)
		of.unwell = set(unwell...)
		of.signed = set(interval.Of(r.segments...).Minus(interval.Of(unwell...))...)
		of.silent, of.deaf = set(r.silences()...), map[int]bits{}
		for peer := range r.deaf {
			of.deaf[peer] = set(r.deafSpans(peer)...)
		}
		g.ranks = append(g.ranks, of)
	}
	v := g.judge()
	out := outcome{suspended: map[string]interval.Set{}}
	byClass := map[string][]interval.Span{}
	var windows []interval.Span
	for t := range g.ticks {
		at := begin + int64(t)
		one := interval.Span{Start: at, End: at + 1}
		if v.billable[t] {
			windows = grown(windows, one)
			continue
		}
		key := fmt.Sprint(v.class[t], v.culprits[t])
		byClass[key] = grown(byClass[key], one)
	}
	out.windows = interval.Of(windows...)
	for key, spans := range byClass {
		out.suspended[key] = interval.Of(spans...)
	}
	for k := range g.ranks {
		out.bills = append(out.bills, [3]int64{v.billedMS[k], v.renter[k], v.host[k]})
		if ms := v.undecided[k].ms + v.platform[k].ms; ms > 0 {
			out.owed = append(out.owed, fmt.Sprintf("%d by relief: %d ms %d", k, ms, v.undecided[k].paid+v.platform[k].paid))
		}
	}
	for pair, d := range v.owed {
		out.owed = append(out.owed, fmt.Sprintf("%d by %d: %d ms %d %d", pair[0], pair[1], d.ms, d.paid,
			millionths(d.paid, g.ranks[pair[0]].ppm)))
	}
	return out.String()
}

// grown adds a span that touches or follows the last one.
func grown(spans []interval.Span, s interval.Span) []interval.Span {
	if n := len(spans); n > 0 && spans[n-1].End == s.Start {
		spans[n-1].End = s.End
		return spans
	}
	return append(spans, s)
}

// attested is for which time the rank's reports say in time that it was up, and for which they say that it was not.
func (r rankStory) attested() (up, unwell []interval.Span) {
	for i, p := range r.reports[1:] {
		before := r.reports[i]
		span := interval.Span{Start: before.at, End: p.at}
		switch {
		case !before.good:
			unwell = append(unwell, span)
		case !p.good:
		case span.Len() <= lostAfter:
			up = append(up, span)
		}
	}
	return append(up, interval.Span{Start: r.start, End: r.reports[0].at}), unwell
}
