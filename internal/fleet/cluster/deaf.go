package cluster

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
)

// What hosts sign about whom they did not hear. Time in which two ranks did not hear each other is not billed, although
// both were up: see fairness.Decide.

// deafBefore is how far before a stretch of time the deaf spans are read that may tell when a silence began. Segments
// that tell of one silence are at most five minutes long.
const deafBefore = 20 * time.Minute

// addDeafness takes in deaf spans, and from when they arrived, which hosts told of a silence too late.
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

// addLate adds the silences of hosts that were decided on because their reports came late.
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
						p.Hosts, p.Kinds = append(p.Hosts, uuids(v.rows[k].HostID)...), append(p.Kinds, "late")
						p.FromMs, p.ToMs = append(p.FromMs, late.Start), append(p.ToMs, late.End)
					}
				}
			}
		}
	}
}

// unconfirmed is the time of the open window that is to be confirmed now. split says that hosts have signed that they
// did not hear each other in it, so that its facts must be read.
func (x *lockedCluster) unconfirmed() (span interval.Span, split bool) {
	span = interval.Span{Start: x.confirmedMS, End: x.watermark().UnixMilli()}
	return span, x.deafAfter && x.sure() && span.Len() > 0
}

// confirm moves the open window's confirmed end to the end of a span that splits nothing.
func (x *lockedCluster) confirm(span interval.Span) {
	cl, at := x.row.ID, time.UnixMilli(span.End).UTC()
	x.addWrite(func(ctx context.Context, w *writer) error { return metering.AdvanceConfirmed(ctx, w.tx, cl, at) })
}

// confirmOrSplit is confirm for a span in which hosts did not hear each other: the time from the first suspended moment
// on becomes pending, and is decided once all proof is here.
func (x *lockedCluster) confirmOrSplit(c pendingCase) {
	first := int64(fairness.Forever)
	verdicts, _ := c.decide(x.now)
	for _, v := range verdicts {
		for _, s := range v.Suspensions {
			first = min(first, s.Start)
		}
	}
	if first >= c.span.End {
		x.confirm(c.span)
		return
	}
	cl, pending := x.row.ID, interval.Span{Start: first, End: c.span.End}
	x.addWrite(func(ctx context.Context, w *writer) error { return metering.SplitWindow(ctx, w.tx, cl, pending) })
}
