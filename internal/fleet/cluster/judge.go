package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
)

// readPending reads the cluster's pending time, the time in which a rank was in doubt, and its facts. It is called
// under the cluster's lock.
func readPending(ctx context.Context, q *dbq.Queries, x *lockedCluster) ([]pendingCase, error) {
	pending, err := metering.PendingOf(ctx, q, x.row.ID)
	if err != nil {
		return nil, err
	}
	out := make([]pendingCase, len(pending))
	for i, p := range pending {
		if out[i], err = readCase(ctx, q, x, p.Span); err != nil {
			return nil, err
		}
		out[i].pending = p
	}
	return out, nil
}

// judge decides which pending time counts, once nothing that could still arrive would change the answer. What counts
// becomes windows, what does not becomes suspensions.
func (b *billing) judge(cases []pendingCase) {
	for _, c := range cases {
		verdicts, final := c.decide(b.now)
		if !final {
			continue
		}
		var billable interval.Set
		for _, v := range verdicts {
			billable = billable.Union(v.Billable)
			for _, s := range v.Suspensions {
				b.out.suspended = append(b.out.suspended, dbq.InsertSuspensionParams{
					ClusterID: b.row.ID,
					FromMs:    s.Start,
					ToMs:      s.End,
					Class:     string(s.Class),
					Culprits:  id.UUIDs(v.leases(s.Culprits)...),
				})
			}
		}
		b.out.addLate(c, verdicts)
		cl, pending := b.row.ID, c.pending
		b.out.addWrite(func(ctx context.Context, w *writer) error {
			return metering.DecidePending(ctx, w.tx, cl, pending, billable)
		})
		b.news.addDecidedEvent(c.span, billable, verdicts)
	}
}

// maxProof is how long after a lease's end its journal may still prove its time.
const maxProof = metering.SettleAfter

// pendingCase is the facts of a stretch of pending time.
type pendingCase struct {
	span      interval.Span
	pending   metering.Pending // set by readPending
	rows      []dbq.LeasesWithinRow
	attested  map[id.Lease]interval.Set
	signed    map[id.Lease]interval.Set
	deaf      map[id.Lease]map[int32]interval.Set
	unwell    map[id.Lease]interval.Set // by its host's own reports
	late      map[id.Lease]interval.Set // from reports that arrived too late
	silent    map[id.Host]interval.Set
	gaps      interval.Set
	undecided interval.Set
}

// readCase reads the facts of a stretch of time, in two round trips.
func readCase(ctx context.Context, q *dbq.Queries, x *lockedCluster, span interval.Span) (c pendingCase, err error) {
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	c = pendingCase{span: span}
	if c.rows, err = q.LeasesWithin(ctx, at(span.Start), x.row.ID, at(span.End)); err != nil {
		return c, fmt.Errorf("leases of %s: %w", x.row.ID, err)
	}
	var leases, hosts []pgtype.UUID
	for _, r := range c.rows {
		leases, hosts = append(leases, id.UUIDs(r.ID)...), append(hosts, id.UUIDs(r.HostID)...)
	}
	var f caseFacts
	b := &pgx.Batch{}
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		f.gaps, err = q.RankGapsWithin(ctx, leases, span.End+noticedLate.Milliseconds(), span.Start)
		return err
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		f.signed, err = q.SignedWithin(ctx, leases, span.End, span.Start)
		return err
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		f.deaf, err = q.DeafSpansWithin(ctx, leases, span.End, span.Start-deafBefore.Milliseconds())
		return err
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		f.silent, err = q.SilencesWithin(ctx, hosts, span.End, span.Start)
		return err
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		f.undecided, err = q.UndecidedWithin(ctx, x.row.ID, span.End, span.Start)
		return err
	})
	host.QueueReception(b, at(span.Start), &f.hearing)
	if err := db.Send(ctx, q, b); err != nil {
		return c, fmt.Errorf("facts of %s: %w", x.row.ID, err)
	}
	c.add(f, x.now)
	return c, nil
}

// caseFacts are the rows of a stretch of time.
type caseFacts struct {
	gaps      []dbq.RankGapsWithinRow
	signed    []dbq.SignedWithinRow
	deaf      []dbq.DeafSpansWithinRow
	silent    []dbq.SilencesWithinRow
	undecided []dbq.UndecidedWithinRow
	hearing   host.Reception
}

// add derives from the rows when each lease was attested, signed, unwell and silent. now is PostgreSQL's clock.
func (c *pendingCase) add(f caseFacts, now time.Time) {
	c.attested, c.signed = map[id.Lease]interval.Set{}, map[id.Lease]interval.Set{}
	c.unwell, c.late = map[id.Lease]interval.Set{}, map[id.Lease]interval.Set{}
	c.silent, c.deaf = map[id.Host]interval.Set{}, map[id.Lease]map[int32]interval.Set{}
	of := func(from, to int64) interval.Set { return interval.Of(interval.Span{Start: from, End: to}) }
	missing := map[id.Lease]interval.Set{}
	for _, g := range f.gaps {
		missing[g.LeaseID] = missing[g.LeaseID].Union(of(g.FromMs, g.ToMs))
		if g.Unwell {
			c.unwell[g.LeaseID] = c.unwell[g.LeaseID].Union(of(g.FromMs, g.ToMs))
		}
	}
	up := map[id.Lease]interval.Set{} // signed segments whose facts report the rank as up
	for _, s := range f.signed {
		i := of(s.StartMs, s.EndMs)
		if c.signed[s.LeaseID] = c.signed[s.LeaseID].Union(i); s.HasFacts {
			up[s.LeaseID] = up[s.LeaseID].Union(i)
		}
	}
	c.addDeafness(f.deaf)
	for _, s := range f.silent {
		c.silent[s.HostID] = c.silent[s.HostID].Union(of(s.FromMs, s.ToMs))
	}
	for _, u := range f.undecided {
		end := now.UnixMilli()
		if u.ToMs != nil {
			end = *u.ToMs
		}
		c.undecided = c.undecided.Union(of(u.FromMs, end))
	}
	for _, r := range c.rows {
		c.attested[r.ID] = of(0, attestedUntil(r)).Minus(missing[r.ID])
		c.unwell[r.ID] = c.unwell[r.ID].Minus(up[r.ID])
		c.signed[r.ID] = c.signed[r.ID].Minus(c.unwell[r.ID])
		c.gaps = c.gaps.Union(f.hearing.Deaf(r.Listener, deref(r.ConnectedAt)).Clip(c.span))
	}
}

// attestedUntil returns the moment, unix ms, through which the reports of a lease's host may attest it, apart from
// gaps.
func attestedUntil(r dbq.LeasesWithinRow) int64 {
	switch {
	case !r.Current:
		return fairness.Forever // when another lease took its place, the time after its last report was recorded as a gap
	case r.ExitCode != nil && *r.ExitCode == 0:
		return fairness.Forever
	case r.ExitCode != nil && r.ExitAt != nil:
		return r.ExitAt.UnixMilli()
	}
	return r.LastGoodMs
}

// verdict is the decision about a stretch in which the same ranks were required.
type verdict struct {
	fairness.Verdict
	rows []dbq.LeasesWithinRow // by position in Facts.Ranks
}

func (v verdict) leases(ranks []int) []id.Lease {
	out := make([]id.Lease, len(ranks))
	for i, k := range ranks {
		out[i] = v.rows[k].ID
	}
	return out
}

// decide applies the rule to each stretch in which the same ranks were required. final reports whether proof that may
// still arrive cannot change the verdicts.
func (c pendingCase) decide(now time.Time) (out []verdict, final bool) {
	final = true
	cuts := []int64{c.span.Start, c.span.End}
	for _, r := range c.rows {
		life := c.life(r)
		cuts = append(cuts, life.Start, life.End)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for k := range len(cuts) - 1 {
		part := interval.Span{Start: cuts[k], End: cuts[k+1]}.And(c.span)
		if part.Len() == 0 {
			continue
		}
		v, f := c.facts(part)
		if len(f.Ranks) == 0 {
			continue
		}
		final = final && c.complete(v.rows, part, now)
		v.Verdict = fairness.Decide(f)
		out = append(out, v)
	}
	return out, final
}

// life returns when a lease was required.
func (c pendingCase) life(r dbq.LeasesWithinRow) interval.Span {
	end := int64(fairness.Forever)
	if r.EndedAt != nil {
		end = r.EndedAt.UnixMilli()
	}
	return interval.Span{Start: r.CreatedAt.UnixMilli(), End: end}
}

func (c pendingCase) facts(part interval.Span) (v verdict, f fairness.Facts) {
	f = fairness.Facts{Run: part, Gaps: c.gaps, Undecided: c.undecided}
	for _, r := range c.rows {
		if c.life(r).And(part).Len() > 0 {
			v.rows = append(v.rows, r)
		}
	}
	for _, r := range v.rows {
		rank := fairness.Rank{Signed: c.signed[r.ID], Attested: c.attested[r.ID], Unwell: c.unwell[r.ID],
			Silent: c.silent[r.HostID].Union(c.late[r.ID]), Deaf: map[int]interval.Set{}}
		for j, o := range v.rows {
			if d := c.deaf[r.ID][o.Rank]; len(d) > 0 {
				rank.Deaf[j] = d
			}
		}
		f.Ranks = append(f.Ranks, rank)
	}
	return v, f
}

// complete reports whether nothing that may still arrive changes the decision about a stretch: it is known which ranks
// each rank received nothing from, and either every rank is proven up throughout, or everything that hosts can send
// about the ranks has arrived.
func (c pendingCase) complete(rows []dbq.LeasesWithinRow, part interval.Span, now time.Time) bool {
	all, heard := true, true
	for _, r := range rows {
		if len(rows) > 1 && !c.deafnessKnown(r, part.End, now) {
			return false
		}
		up := c.attested[r.ID].Union(c.signed[r.ID]).Clip(part)
		all = all && up.Len() == part.Len()
		heard = heard && (journal(r, part.End) || over(r, now))
	}
	return all || heard
}

// deafnessKnown reports whether it is known which ranks a rank received nothing from until the given moment. A host
// notices a silence some seconds late, so this takes a report or a segment from after the moment; an ongoing silence
// is known as far as it is signed.
func (c pendingCase) deafnessKnown(r dbq.LeasesWithinRow, end int64, now time.Time) bool {
	late := end + noticedLate.Milliseconds()
	if r.Protocol < protocolDeaf || journal(r, late) || over(r, now) {
		return true
	}
	goesOn := r.Current && slices.ContainsFunc(r.PeersFromMs, func(from int64) bool { return from < end })
	return c.attested[r.ID].Contains(late-1) && (!goesOn || journal(r, end))
}

// journal reports whether everything has arrived that a lease's host signs of the time before the given moment. The
// last segment alone does not show whether the command had ended with 0 by then, after which the rank is done and not
// missing: a report shows that.
func journal(r dbq.LeasesWithinRow, end int64) bool {
	last := r.Final && (r.EndedAt != nil || r.ExitCode != nil || !r.Current)
	return !r.HasHole && (last || r.ProvenMs >= end)
}

// over reports whether nothing more of a lease can arrive.
func over(r dbq.LeasesWithinRow, now time.Time) bool {
	return r.SettledAt != nil || r.EndedAt != nil && now.Sub(*r.EndedAt) >= maxProof
}

// What hosts sign about the ranks from which they received nothing. Time in which two ranks had lost contact is not
// billed, although both were up: see fairness.Decide.

// deafBefore is how far before a stretch of time deaf spans are read, to find when a silence began. Segments about one
// silence are at most five minutes long.
const deafBefore = 20 * time.Minute

// addDeafness adds deaf spans and, from the time of their arrival, which hosts reported a silence too late.
func (c *pendingCase) addDeafness(rows []dbq.DeafSpansWithinRow) {
	records := map[id.Lease]map[int32][]fairness.DeafRecord{}
	for _, d := range rows {
		if records[d.LeaseID] == nil {
			c.deaf[d.LeaseID], records[d.LeaseID] = map[int32]interval.Set{}, map[int32][]fairness.DeafRecord{}
		}
		s := interval.Span{Start: d.FromMs, End: d.ToMs}
		records[d.LeaseID][d.Peer] = append(records[d.LeaseID][d.Peer], fairness.DeafRecord{
			Span:       s,
			ReceivedMS: d.ReceivedAt.UnixMilli(),
		})
		c.deaf[d.LeaseID][d.Peer] = c.deaf[d.LeaseID][d.Peer].Union(interval.Of(s))
	}
	for l, peers := range records {
		for _, about := range peers {
			c.late[l] = c.late[l].Union(fairness.LateSilences(about, c.span.Start-deafBefore.Milliseconds()+
				noticedLate.Milliseconds()))
		}
	}
}

// addLate adds the silences of hosts that counted in the decision because their reports came late.
func (e *effects) addLate(c pendingCase, verdicts []verdict) {
	p := &e.silences
	for _, v := range verdicts {
		for _, s := range v.Suspensions {
			if s.Class != fairness.Silence {
				continue
			}
			for _, k := range s.Culprits {
				for _, late := range c.late[v.rows[k].ID] {
					if late.And(s.Span).Len() > 0 {
						p.Hosts, p.Kinds = append(p.Hosts, id.UUIDs(v.rows[k].HostID)...), append(p.Kinds, "late")
						p.FromMs, p.ToMs = append(p.FromMs, late.Start), append(p.ToMs, late.End)
					}
				}
			}
		}
	}
}
