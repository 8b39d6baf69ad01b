package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
)

const (
	// quickFailure is how soon after its start a command must fail to count towards maxQuickFailures.
	quickFailure = time.Minute
	// maxQuickFailures in a row end restart: on_failure, so that a command that cannot work does not run for ever.
	maxQuickFailures = 5
)

// apply does what a transition means.
func (x *change) apply(d Decision) {
	x.row.State = string(d.To)
	x.creditLost(d)
	x.countEnd(d)
	switch d.On {
	case OnAllAtBarrier:
		x.openBarrier()
	case OnAllStarted:
		x.lateStarts()
		x.running()
	case OnStartTimeout:
		x.lateStarts()
		x.end(d.Reason, d.Detail)
	case OnNodeLost:
		x.doubt()
		x.row.Reason, x.row.Detail = string(d.Reason), x.eventDetail(d)
	case OnNodeBack, OnResumed:
		x.resume()
		x.row.Reason, x.row.Detail = "", ""
	case OnRankIgnored:
		x.ignore(d.Ranks)
		x.row.Reason, x.row.Detail = string(d.Reason), x.eventDetail(d)
		x.notifyIgnored(d)
	case OnReplacing:
		x.giveUp(d)
	case OnReplaced:
		x.replaced(d)
	case OnRestart:
		x.stopWindow(x.firstFailure())
		x.countFailure()
		x.startAgain()
	case OnAllGone:
	case OnLossFinal:
		x.unreplaced(d)
		x.end(d.Reason, d.Detail)
	default:
		x.end(d.Reason, d.Detail)
	}
	x.addEvent(string(d.On), d.Title, x.eventDetail(d))
	x.events[len(x.events)-1].Data = d.eventData()
}

// openBarrier opens the barrier of this epoch: hosts learn it from their desired state.
func (x *change) openBarrier() {
	x.row.GoAt = &x.now
	x.deadline(x.c.cfg.GoTimeout)
	x.network()
	x.raiseLive()
	x.locked = append(x.locked, x.authorise)
}

// running: the last rank has started, seconds count from now.
func (x *change) running() {
	at := x.lastStart()
	if x.row.RunningAt == nil {
		seen := earliest(at, x.now)
		x.row.RunningAt = &seen
	}
	x.row.StartDeadline, x.row.Reason, x.row.Detail = nil, "", ""
	x.row.ReplaceUntil, x.row.ReplaceNote = nil, ""
	x.resumeAt(at)
	x.locked = append(x.locked, x.authorise)
}

// resume lets seconds count again from now on. Whether the time in doubt before it counts is decided when its proof is
// there: see judge.go.
func (x *change) resume() {
	if !x.doubtFrom.IsZero() {
		x.doubtFrom = time.Time{}
		x.book(func(ctx context.Context) error { return metering.ResumeWindow(ctx, x.tx, x.row.ID, x.now) })
		return
	}
	x.resumeAt(x.now)
}

func (x *change) resumeAt(at time.Time) {
	x.window = true
	x.book(func(ctx context.Context) error { return metering.OpenWindow(ctx, x.tx, x.row.ID, at) })
}

// doubt keeps anything from being confirmed after the last moment at which every required rank is proven to have been
// up.
func (x *change) doubt() {
	if !x.sure() {
		return
	}
	from := x.watermark()
	if x.deafAfter { // the rule decides it all
		from = earliest(from, time.UnixMilli(x.confirmedMS))
	}
	x.doubtFrom = from
	x.book(func(ctx context.Context) error {
		if err := metering.AdvanceConfirmed(ctx, x.tx, x.row.ID, from); err != nil {
			return err
		}
		return metering.DoubtWindow(ctx, x.tx, x.row.ID, from)
	})
}

// sure reports whether seconds count at present.
func (x *change) sure() bool { return x.window && x.doubtFrom.IsZero() }

// stopWindow ends the window at the given moment. What is not proven up to there stays pending.
func (x *change) stopWindow(at time.Time) {
	if !x.window {
		return
	}
	confirmed, doubted := x.confirmed(), !x.doubtFrom.IsZero()
	if x.deafAfter { // the rule decides it all
		confirmed = time.UnixMilli(x.confirmedMS)
	}
	x.window, x.doubtFrom = false, time.Time{}
	x.book(func(ctx context.Context) error {
		if !doubted {
			if err := metering.AdvanceConfirmed(ctx, x.tx, x.row.ID, earliest(confirmed, at)); err != nil {
				return err
			}
			if confirmed.Before(at) {
				if err := metering.DoubtWindow(ctx, x.tx, x.row.ID, confirmed); err != nil {
					return err
				}
			}
		}
		_, err := metering.CloseWindow(ctx, x.tx, x.row.ID, at)
		return err
	})
}

// ignore goes on without ranks: they are no longer billed, waited for, or desired.
func (x *change) ignore(ranks []int) {
	for _, r := range ranks {
		n := x.nodes[r]
		n.required, n.ended = false, &x.now
		x.raise[n.HostID] = true
		x.book(func(ctx context.Context) error {
			if err := metering.SetRequired(ctx, x.tx, n.LeaseID, false); err != nil {
				return err
			}
			return metering.EndLease(ctx, x.tx, n.LeaseID, x.now)
		})
	}
	x.raiseLive() // the others no longer see it among their peers
}

// countFailure counts commands that fail soon after their start, in a row.
func (x *change) countFailure() {
	if x.row.GoAt != nil && x.now.Sub(*x.row.GoAt) < quickFailure {
		x.row.QuickFailures++
	} else {
		x.row.QuickFailures = 0
	}
}

// startAgain begins a new epoch on the ranks' hosts: what runs of the old one is stopped there.
func (x *change) startAgain() {
	x.row.Epoch++
	x.row.GoAt, x.row.Reason, x.row.Detail = nil, "", ""
	x.deadline(x.c.cfg.StartTimeout)
	for _, n := range x.nodes {
		if n.ended != nil {
			continue // its rank waits for another host
		}
		x.step(n, NodeAgain, ReasonNone, "")
		n.restart(x.row.Epoch)
		lease, epoch := n.LeaseID, int(n.Epoch)
		x.book(func(ctx context.Context) error { return metering.SetEpoch(ctx, x.tx, lease, epoch) })
	}
	x.raiseLive()
}

// restart forgets what a node's earlier start came to.
func (n *node) restart(epoch int32) {
	n.Epoch, n.StartedAt, n.ExitCode, n.ExitAt = epoch, nil, nil, nil
	n.WgKey, n.Endpoints, n.Preflight, n.dirty = "", []string{}, []byte("{}"), true
}

// end stops everything: nothing is desired any more, nothing after the moment the run ended is billed. The window is
// closed by closeWindow, once the hosts have reported up to it.
func (x *change) end(r Reason, detail string) {
	at := x.now
	switch {
	case r == ReasonWorkloadFailed:
		at = x.firstFailure()
	case r == ReasonCompleted:
		at = x.lastExit()
	case x.row.RunUntil != nil && x.row.GoAt != nil && x.row.RunUntil.Before(at):
		at = *x.row.RunUntil // hosts have stopped there by themselves
	}
	x.row.StopAt, x.row.EndedAt, x.row.StartDeadline = &at, &x.now, nil
	x.row.ReplaceUntil, x.row.ReplaceNote = nil, ""
	x.row.Reason, x.row.Detail = string(r), join(r.Explain(x.row.RunningAt != nil), detail)
	x.row.Secrets = nil // nobody needs them any more
	x.raiseLive()
	for _, n := range x.nodes {
		if n.ended == nil {
			n.ended = &x.now
			x.step(n, NodeDismissed, ReasonNone, "")
		}
	}
	until := x.tail(r, at)
	x.book(func(ctx context.Context) error { return metering.EndLeases(ctx, x.tx, x.row.ID, until) })
}

// tail is until when a lease's processes may run on after an end of the renter's own doing, and are billed for it: each
// lease alone, as its host signs it, from the stop to the end of its process. Grace and a moment, but never past
// run_until. Other ends have no tail: of a command that has completed on every rank no process is left.
func (x *change) tail(r Reason, stop time.Time) time.Time {
	switch r {
	case ReasonReleasedByUser, ReasonMaxDuration, ReasonWorkloadFailed:
	default:
		return stop
	}
	if x.row.RunUntil == nil || !x.window {
		return stop
	}
	paid := interval.Of(interval.Span{Start: 0, End: x.row.RunUntil.UnixMilli()})
	tail := fairness.Tail(paid, stop.UnixMilli(), graceSeconds*time.Second)
	if len(tail) == 0 {
		return stop
	}
	until := time.UnixMilli(tail[0].End).UTC()
	x.book(func(ctx context.Context) error { return metering.AddTail(ctx, x.tx, x.row.ID, stop, until) })
	return until
}

// closeWindow ends the window of an ended run when every required rank is proven up to its end. When a rank is not, and
// is not likely to be heard of soon, the time that is not proven becomes pending. Until then the window stays open and
// nothing past the proven moment is posted.
func (x *change) closeWindow() {
	if !x.window || !State(x.row.State).Ended() {
		return
	}
	confirmed, stop := x.confirmed(), *x.row.StopAt
	if x.doubtFrom.IsZero() && confirmed.Before(stop) {
		for _, n := range x.nodes {
			if n.required && x.goodThrough(n).Before(stop) && !n.given(x.now, x.c.cfg.AbandonAfter) {
				return
			}
		}
	}
	x.stopWindow(stop)
}

// given reports whether nothing more will be heard that proves the node's last seconds.
func (n *node) given(now time.Time, abandon time.Duration) bool {
	s := NodeState(n.State)
	return n.gone != nil || s == NodeFailed || s == NodeLost || now.Sub(n.status.ReportedAt) > abandon
}

// confirmed is the moment through which all required ranks were well without a gap in what their hosts report.
func (x *change) confirmed() time.Time {
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
func (x *change) firstGap() (at time.Time) {
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

// doubtGap leaves to judge a gap that was over before anybody looked, as if somebody had: what is billed does not
// depend on when the watchdog comes.
func (x *change) doubtGap() {
	if !x.sure() || x.firstGap().IsZero() {
		return
	}
	if f := x.facts(); slices.ContainsFunc(f.required(), func(n NodeFacts) bool { return n.down(f) }) {
		return // the loss is about to be noticed: its doubt begins with the gap
	}
	x.doubt()
	x.gaps = nil
	x.resume()
}

// watermark is through when the billable time can no longer become less: all required ranks were well, and it is known
// whom they did not hear.
func (x *change) watermark() time.Time {
	t := x.now
	var tell []fairness.Progress // the ranks whose hosts sign whom they do not hear
	for _, n := range x.nodes {
		if !n.required {
			continue
		}
		g := x.goodThrough(n)
		if t = earliest(t, g); len(x.nodes) > 1 && n.ExitCode == nil && n.protocol >= protocolDeaf {
			tell = append(tell, fairness.Progress{ReportedMS: g.UnixMilli()})
		}
	}
	if g := x.firstGap(); !g.IsZero() {
		if t = earliest(t, g); len(tell) > 0 {
			tell = append(tell, fairness.Progress{ReportedMS: g.UnixMilli()})
		}
	}
	if len(tell) > 0 {
		t = earliest(t, time.UnixMilli(fairness.Posted(tell)))
	}
	return t
}

// protocolDeaf is the first protocol whose agents sign whom they do not hear.
const protocolDeaf = 2

// goodThrough is through when a rank is proven well. One that ended with 0 is done and never in doubt; another exit
// is its last good moment.
func (x *change) goodThrough(n *node) time.Time {
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

// firstFailure is when the first exit with an error was reported.
func (x *change) firstFailure() time.Time {
	t := x.now
	for _, n := range x.nodes {
		if n.ExitCode != nil && *n.ExitCode != 0 && n.ExitAt.Before(t) {
			t = *n.ExitAt
		}
	}
	return t
}

// lastStart is when the last required rank started, by its host's proof: a moment ahead, where that host's clock is
// (see report.go).
func (x *change) lastStart() time.Time {
	var t time.Time
	for _, n := range x.nodes {
		if n.required && n.StartedAt != nil {
			t = latest(t, *n.StartedAt)
		}
	}
	if t.IsZero() {
		return x.now
	}
	return t
}

// lastExit is when the last rank ended: what hosts and servers take to learn of it, or an outage between, costs nobody.
func (x *change) lastExit() time.Time {
	var t time.Time
	for _, n := range x.nodes {
		if n.required && n.ExitAt != nil {
			t = latest(t, *n.ExitAt)
		}
	}
	if t.IsZero() || t.After(x.now) {
		return x.now
	}
	return t
}

func (x *change) deadline(d time.Duration) {
	t := x.now.Add(d)
	x.row.StartDeadline = &t
}

// raiseLive tells every host of the cluster whose lease is not gone.
func (x *change) raiseLive() {
	for _, n := range x.nodes {
		if n.gone == nil {
			x.raise[n.HostID] = true
		}
	}
}

func (x *change) book(f func(context.Context) error) { x.locked = append(x.locked, f) }

// byLease finds a node by its lease; nil when the lease is not the node's present one.
func (x *change) byLease(l id.Lease) *node {
	for _, n := range x.nodes {
		if n.LeaseID == l {
			return n
		}
	}
	return nil
}
