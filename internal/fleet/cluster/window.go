package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/interval"
)

// resume lets seconds count again from now on. Whether the time in doubt before it counts is decided when its proof is
// there: see judge.go. If every rank has ended, the time in doubt ends when the last rank ended.
func (x *lockedCluster) resume() {
	if x.doubtFrom.IsZero() {
		x.resumeAt(x.now)
		return
	}
	at := x.now
	if !slices.ContainsFunc(x.nodes, func(n *node) bool { return n.required && n.ExitCode == nil }) {
		at = latest(x.doubtFrom, x.lastExit())
	}
	x.doubtFrom = time.Time{}
	x.addWrite(func(ctx context.Context, w *writer) error { return metering.ResumeWindow(ctx, w.tx, x.row.ID, at) })
}

func (x *lockedCluster) resumeAt(at time.Time) {
	x.window = true
	x.addWrite(func(ctx context.Context, w *writer) error { return metering.OpenWindow(ctx, w.tx, x.row.ID, at) })
}

// doubt keeps anything from being confirmed after the last moment at which every required rank is proven to have been
// up.
func (x *lockedCluster) doubt() {
	if !x.sure() {
		return
	}
	from := x.watermark()
	if x.deafAfter { // the rule decides it all
		from = earliest(from, time.UnixMilli(x.confirmedMS))
	}
	x.doubtFrom = from
	x.addWrite(func(ctx context.Context, w *writer) error {
		if err := metering.AdvanceConfirmed(ctx, w.tx, x.row.ID, from); err != nil {
			return err
		}
		return metering.DoubtWindow(ctx, w.tx, x.row.ID, from)
	})
}

// sure reports whether seconds count at present.
func (x *lockedCluster) sure() bool { return x.window && x.doubtFrom.IsZero() }

// stopWindow ends the window at the given moment. What is not proven up to there stays pending.
func (x *lockedCluster) stopWindow(at time.Time) {
	if !x.window {
		return
	}
	confirmed, doubted := x.confirmed(), !x.doubtFrom.IsZero()
	if x.deafAfter { // the rule decides it all
		confirmed = time.UnixMilli(x.confirmedMS)
	}
	x.window, x.doubtFrom = false, time.Time{}
	x.addWrite(func(ctx context.Context, w *writer) error {
		if !doubted {
			if err := metering.AdvanceConfirmed(ctx, w.tx, x.row.ID, earliest(confirmed, at)); err != nil {
				return err
			}
			if confirmed.Before(at) {
				if err := metering.DoubtWindow(ctx, w.tx, x.row.ID, confirmed); err != nil {
					return err
				}
			}
		}
		_, err := metering.CloseWindow(ctx, w.tx, x.row.ID, at)
		return err
	})
}

// tail is until when a lease's processes may run on after an end of the renter's own doing, and are billed for it: each
// lease alone, as its host signs it, from the stop to the end of its process. Grace and a moment, but never past
// run_until. Other ends have no tail: of a command that has completed on every rank no process is left.
func (x *lockedCluster) tail(r lifecycle.Reason, stop time.Time) time.Time {
	switch r {
	case lifecycle.ReasonReleasedByUser, lifecycle.ReasonMaxDuration, lifecycle.ReasonWorkloadFailed:
	default:
		return stop
	}
	if x.row.RunUntil == nil || !x.window {
		return stop
	}
	paid := interval.Of(interval.Span{Start: 0, End: x.row.RunUntil.UnixMilli()})
	tail := fairness.Tail(paid, stop.UnixMilli(), lifecycle.StopGrace)
	if len(tail) == 0 {
		return stop
	}
	until := time.UnixMilli(tail[0].End).UTC()
	x.addWrite(func(ctx context.Context, w *writer) error { return metering.AddTail(ctx, w.tx, x.row.ID, stop, until) })
	return until
}

// closeWindow ends the window of an ended run when every required rank is proven up to its end. When a rank is not, and
// is not likely to report soon, the time that is not proven becomes pending. Until then the window stays open and
// nothing past the proven moment is posted.
func (x *lockedCluster) closeWindow() {
	if !x.window || !lifecycle.State(x.row.State).Ended() {
		return
	}
	confirmed, stop := x.confirmed(), *x.row.StopAt
	if x.doubtFrom.IsZero() && confirmed.Before(stop) {
		for _, n := range x.nodes {
			if n.required && x.goodThrough(n).Before(stop) && !n.given(x.now, x.cfg.AbandonAfter) {
				return
			}
		}
	}
	x.stopWindow(stop)
}

// given reports whether nothing more will arrive that proves the node's last seconds.
func (n *node) given(now time.Time, abandon time.Duration) bool {
	s := lifecycle.NodeState(n.State)
	return n.gone != nil || s == lifecycle.NodeFailed || s == lifecycle.NodeLost || now.Sub(n.status.ReportedAt) > abandon
}

// confirmed is the moment through which all required ranks were well without a gap in what their hosts report.
func (x *lockedCluster) confirmed() time.Time {
	t := x.now
	for _, n := range x.nodes {
		if g := x.goodThrough(n); n.required && g.Before(t) {
			t = g
		}
	}
	if g := x.firstGap(); !g.IsZero() && g.Before(t) {
		return g
	}
	return t
}

// firstGap is when the first gap of a required rank began that nothing was decided about; zero: there is none.
func (x *lockedCluster) firstGap() (at time.Time) {
	for _, g := range x.gaps {
		if n := x.byLease(g.LeaseID); n == nil || !n.required {
			continue
		}
		if from := time.UnixMilli(g.FromMs); at.IsZero() || from.Before(at) {
			at = from
		}
	}
	return at
}

// doubtGap leaves to judge a gap that was over before a server looked, as if one had: what is billed does not
// depend on when the watchdog comes.
func (x *lockedCluster) doubtGap() {
	if !x.sure() || x.firstGap().IsZero() {
		return
	}
	if f := x.facts(); slices.ContainsFunc(f.Required(), func(n lifecycle.NodeFacts) bool { return n.IsDown(f) }) {
		return // the loss is about to be noticed: its doubt begins with the gap
	}
	x.doubt()
	x.gaps = nil
	x.resume()
}

// watermark is through when the billable time can no longer become less: all required ranks were well, and it is known
// from whom they received nothing.
func (x *lockedCluster) watermark() time.Time {
	t := x.now
	var signing []fairness.Progress // the ranks whose hosts sign from whom they receive nothing
	for _, n := range x.nodes {
		if !n.required {
			continue
		}
		g := x.goodThrough(n)
		if t = earliest(t, g); len(x.nodes) > 1 && n.ExitCode == nil && n.protocol >= protocolDeaf {
			signing = append(signing, fairness.Progress{ReportedMS: g.UnixMilli()})
		}
	}
	if g := x.firstGap(); !g.IsZero() {
		if t = earliest(t, g); len(signing) > 0 {
			signing = append(signing, fairness.Progress{ReportedMS: g.UnixMilli()})
		}
	}
	if len(signing) > 0 {
		t = earliest(t, time.UnixMilli(fairness.Posted(signing)))
	}
	return t
}

// protocolDeaf is the first protocol whose agents sign from whom they receive nothing.
const protocolDeaf = 2

// goodThrough is through when a rank is proven well. One that ended with 0 is done and never in doubt; another exit
// is its last good moment.
func (x *lockedCluster) goodThrough(n *node) time.Time {
	switch {
	case n.ExitCode != nil && *n.ExitCode == 0:
		return x.now
	case n.ExitCode != nil && n.ExitAt != nil:
		return *n.ExitAt
	case n.status.Epoch != n.Epoch:
		return time.Time{}
	}
	return time.UnixMilli(n.status.LastGoodMs)
}

// unconfirmed is the time of the open window that is to be confirmed now. split says that hosts have signed that they
// had lost contact in it, so that its facts must be read.
func (x *lockedCluster) unconfirmed() (span interval.Span, split bool) {
	span = interval.Span{Start: x.confirmedMS, End: x.watermark().UnixMilli()}
	return span, x.deafAfter && x.sure() && span.Len() > 0
}

// confirm moves the open window's confirmed end to the end of a span that splits nothing.
func (x *lockedCluster) confirm(span interval.Span) {
	cl, at := x.row.ID, time.UnixMilli(span.End).UTC()
	x.addWrite(func(ctx context.Context, w *writer) error { return metering.AdvanceConfirmed(ctx, w.tx, cl, at) })
}

// confirmOrSplit is confirm for a span in which hosts had lost contact: the time from the first suspended moment
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
