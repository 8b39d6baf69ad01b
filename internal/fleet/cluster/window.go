package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/interval"
)

// billing decides which seconds of a locked cluster count, and what follows when the money ends.
type billing struct {
	cfg     *Config
	now     time.Time
	row     *dbq.Cluster
	out     *effects
	members *members
	news    *news

	window bool // a billing window is open
	// confirmedMS is through when the open window is confirmed, unix ms. deafAfter says that a host has signed that it was
	// deaf to another rank after that.
	confirmedMS int64
	deafAfter   bool
	// doubtFrom is since when a rank is in doubt while the window is open; zero: none is.
	doubtFrom time.Time
	gaps      []dbq.UnjudgedGapsRow // time without attestation that is not decided yet
}

// resume lets seconds count again from now on. Whether the time in doubt before it counts is decided when its proof is
// there: see judge.go. If every rank has ended, the time in doubt ends when the last rank ended.
func (b *billing) resume() {
	if b.doubtFrom.IsZero() {
		b.resumeAt(b.now)
		return
	}
	at := b.now
	if !slices.ContainsFunc(b.members.nodes, func(n *node) bool { return n.required && n.ExitCode == nil }) {
		at = latest(b.doubtFrom, b.members.lastExit())
	}
	b.doubtFrom = time.Time{}
	b.out.addWrite(func(ctx context.Context, w *writer) error { return metering.ResumeWindow(ctx, w.tx, b.row.ID, at) })
}

func (b *billing) resumeAt(at time.Time) {
	b.window = true
	b.out.addWrite(func(ctx context.Context, w *writer) error { return metering.OpenWindow(ctx, w.tx, b.row.ID, at) })
}

// doubt keeps anything from being confirmed after the last moment at which every required rank is proven to have been
// up.
func (b *billing) doubt() {
	if !b.sure() {
		return
	}
	from := b.watermark()
	if b.deafAfter { // the rule decides it all
		from = earliest(from, time.UnixMilli(b.confirmedMS))
	}
	b.doubtFrom = from
	b.out.addWrite(func(ctx context.Context, w *writer) error {
		if err := metering.AdvanceConfirmed(ctx, w.tx, b.row.ID, from); err != nil {
			return err
		}
		return metering.DoubtWindow(ctx, w.tx, b.row.ID, from)
	})
}

// sure reports whether seconds count at present.
func (b *billing) sure() bool { return b.window && b.doubtFrom.IsZero() }

// stopWindow ends the window at the given moment. What is not proven up to there stays pending.
func (b *billing) stopWindow(at time.Time) {
	if !b.window {
		return
	}
	confirmed, doubted := b.confirmed(), !b.doubtFrom.IsZero()
	if b.deafAfter { // the rule decides it all
		confirmed = time.UnixMilli(b.confirmedMS)
	}
	b.window, b.doubtFrom = false, time.Time{}
	b.out.addWrite(func(ctx context.Context, w *writer) error {
		if !doubted {
			if err := metering.AdvanceConfirmed(ctx, w.tx, b.row.ID, earliest(confirmed, at)); err != nil {
				return err
			}
			if confirmed.Before(at) {
				if err := metering.DoubtWindow(ctx, w.tx, b.row.ID, confirmed); err != nil {
					return err
				}
			}
		}
		_, err := metering.CloseWindow(ctx, w.tx, b.row.ID, at)
		return err
	})
}

// tail is until when a lease's processes may run on after an end of the renter's own doing, and are billed for it: each
// lease alone, as its host signs it, from the stop to the end of its process. Grace and a moment, but never past
// run_until. Other ends have no tail: of a command that has completed on every rank no process is left.
func (b *billing) tail(r lifecycle.Reason, stop time.Time) time.Time {
	switch r {
	case lifecycle.ReasonReleasedByUser, lifecycle.ReasonMaxDuration, lifecycle.ReasonWorkloadFailed:
	default:
		return stop
	}
	if b.row.RunUntil == nil || !b.window {
		return stop
	}
	paid := interval.Of(interval.Span{Start: 0, End: b.row.RunUntil.UnixMilli()})
	tail := fairness.Tail(paid, stop.UnixMilli(), lifecycle.StopGrace)
	if len(tail) == 0 {
		return stop
	}
	until := time.UnixMilli(tail[0].End).UTC()
	b.out.addWrite(func(ctx context.Context, w *writer) error {
		return metering.AddTail(ctx, w.tx, b.row.ID, stop, until)
	})
	return until
}

// closeWindow ends the window of an ended run when every required rank is proven up to its end. When a rank is not, and
// is not likely to report soon, the time that is not proven becomes pending. Until then the window stays open and
// nothing past the proven moment is posted.
func (b *billing) closeWindow() {
	if !b.window || !lifecycle.State(b.row.State).Ended() {
		return
	}
	confirmed, stop := b.confirmed(), *b.row.StopAt
	if b.doubtFrom.IsZero() && confirmed.Before(stop) {
		for _, n := range b.members.nodes {
			if n.required && b.goodThrough(n).Before(stop) && !n.given(b.now, b.cfg.AbandonAfter) {
				return
			}
		}
	}
	b.stopWindow(stop)
}

// given reports whether nothing more will arrive that proves the node's last seconds.
func (n *node) given(now time.Time, abandon time.Duration) bool {
	s := lifecycle.NodeState(n.State)
	return n.gone != nil || s == lifecycle.NodeFailed || s == lifecycle.NodeLost || now.Sub(n.status.ReportedAt) > abandon
}

// confirmed is the moment through which all required ranks were well without a gap in what their hosts report.
func (b *billing) confirmed() time.Time {
	t := b.now
	for _, n := range b.members.nodes {
		if g := b.goodThrough(n); n.required && g.Before(t) {
			t = g
		}
	}
	if g := b.firstGap(); !g.IsZero() && g.Before(t) {
		return g
	}
	return t
}

// firstGap is when the first gap of a required rank began that nothing was decided about; zero: there is none.
func (b *billing) firstGap() (at time.Time) {
	for _, g := range b.gaps {
		if n := b.members.byLease(g.LeaseID); n == nil || !n.required {
			continue
		}
		if from := time.UnixMilli(g.FromMs); at.IsZero() || from.Before(at) {
			at = from
		}
	}
	return at
}

// watermark is through when the billable time can no longer become less: all required ranks were well, and it is known
// from whom they received nothing.
func (b *billing) watermark() time.Time {
	t := b.now
	var signing []fairness.Progress // the ranks whose hosts sign from whom they receive nothing
	for _, n := range b.members.nodes {
		if !n.required {
			continue
		}
		g := b.goodThrough(n)
		if t = earliest(t, g); len(b.members.nodes) > 1 && n.ExitCode == nil && n.protocol >= protocolDeaf {
			signing = append(signing, fairness.Progress{ReportedMS: g.UnixMilli()})
		}
	}
	if g := b.firstGap(); !g.IsZero() {
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
func (b *billing) goodThrough(n *node) time.Time {
	switch {
	case n.ExitCode != nil && *n.ExitCode == 0:
		return b.now
	case n.ExitCode != nil && n.ExitAt != nil:
		return *n.ExitAt
	case n.status.Epoch != n.Epoch:
		return time.Time{}
	}
	return time.UnixMilli(n.status.LastGoodMs)
}

// unconfirmed is the time of the open window that is to be confirmed now. split says that hosts have signed that they
// had lost contact in it, so that its facts must be read.
func (b *billing) unconfirmed() (span interval.Span, split bool) {
	span = interval.Span{Start: b.confirmedMS, End: b.watermark().UnixMilli()}
	return span, b.deafAfter && b.sure() && span.Len() > 0
}

// confirm moves the open window's confirmed end to the end of a span that splits nothing.
func (b *billing) confirm(span interval.Span) {
	cl, at := b.row.ID, time.UnixMilli(span.End).UTC()
	b.out.addWrite(func(ctx context.Context, w *writer) error { return metering.AdvanceConfirmed(ctx, w.tx, cl, at) })
}

// confirmOrSplit is confirm for a span in which hosts had lost contact: the time from the first suspended moment
// on becomes pending, and is decided once all proof is here.
func (b *billing) confirmOrSplit(c pendingCase) {
	first := int64(fairness.Forever)
	verdicts, _ := c.decide(b.now)
	for _, v := range verdicts {
		for _, s := range v.Suspensions {
			first = min(first, s.Start)
		}
	}
	if first >= c.span.End {
		b.confirm(c.span)
		return
	}
	cl, pending := b.row.ID, interval.Span{Start: first, End: c.span.End}
	b.out.addWrite(func(ctx context.Context, w *writer) error { return metering.SplitWindow(ctx, w.tx, cl, pending) })
}

// doubtSentence returns a text for the renter: since when nothing is billed, which ranks do not respond, and what
// follows.
func (b *billing) doubtSentence(d lifecycle.Decision) string {
	since := b.confirmed()
	if !b.doubtFrom.IsZero() {
		since = b.doubtFrom
	}
	s := "Not billed since " + since.UTC().Format("15:04:05") + " UTC"
	if len(d.Ranks) == 2 && d.Reason == lifecycle.ReasonPeersUnreachable {
		return s + fmt.Sprintf(": ranks %d and %d have lost contact with each other.", d.Ranks[0], d.Ranks[1])
	}
	if len(d.Ranks) > 0 {
		n := b.members.nodes[d.Ranks[0]]
		s += fmt.Sprintf(": rank %d (host %s) is not proven up", n.Rank, n.hostName)
	}
	return s + ", unless it proves later that nothing was missed."
}
