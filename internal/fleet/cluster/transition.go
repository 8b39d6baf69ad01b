package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// machine changes clusters by the transitions of their lifecycle, under the locks of their rows.
type machine struct {
	db     *db.DB
	market *market.Market
	bus    *bus.Bus // may be nil
	cfg    *Config
	log    *slog.Logger
}

// alter locks a cluster, lets f put in what happened, applies what follows from it, and writes the result in tx.
func (m *machine) alter(ctx context.Context, tx *db.Tx, cl id.Cluster, f func(*lockedCluster) error) error {
	x, err := m.lock(ctx, tx, cl)
	if err != nil {
		return err
	}
	if err := f(x); err != nil {
		return err
	}
	x.assess()
	if err := readBonds(ctx, tx.Q, x); err != nil {
		return err
	}
	if err := x.applyTransitions(); err != nil {
		return err
	}
	return m.writer(tx, x).commit(ctx)
}

// maxSteps bounds how many transitions follow from one set of facts: at barrier, started, exited, gone.
const maxSteps = 8

// applyTransitions applies transitions until the facts ask for no more.
func (x *lockedCluster) applyTransitions() error {
	for range maxSteps {
		d, ok := lifecycle.Next(lifecycle.State(x.row.State), x.facts())
		if !ok {
			return nil
		}
		x.transition(d)
	}
	return fmt.Errorf("cluster %s finds no rest in state %s", x.row.ID, x.row.State)
}

const (
	// quickFailure is how soon after its start a command must fail to count towards maxQuickFailures.
	quickFailure = time.Minute
	// maxQuickFailures in a row end restart: on_failure, so that a command that cannot work does not restart indefinitely.
	maxQuickFailures = 5
)

// transition does what a decision of Next means.
func (x *lockedCluster) transition(d lifecycle.Decision) {
	x.row.State = string(d.To)
	x.creditLost(d)
	x.countEnd(d)
	switch d.On {
	case lifecycle.OnAllAtBarrier:
		x.openBarrier()
	case lifecycle.OnAllStarted:
		x.lateStarts()
		x.running()
	case lifecycle.OnStartTimeout:
		x.lateStarts()
		x.end(d.Reason, d.Detail)
	case lifecycle.OnNodeLost:
		x.doubt()
		x.row.Reason, x.row.Detail = string(d.Reason), x.eventDetail(d)
	case lifecycle.OnNodeBack, lifecycle.OnResumed:
		x.resume()
		x.row.Reason, x.row.Detail = "", ""
	case lifecycle.OnRankIgnored:
		x.ignore(d.Ranks)
		x.row.Reason, x.row.Detail = string(d.Reason), x.eventDetail(d)
		x.notifyIgnored(d)
	case lifecycle.OnReplacing:
		x.giveUp(d)
	case lifecycle.OnReplaced:
		x.replaced(d)
	case lifecycle.OnRestart:
		x.startEnds(x.now, d.Reason)
		x.stopWindow(x.firstFailure())
		x.countFailure()
		x.startAgain()
	case lifecycle.OnAllGone:
	case lifecycle.OnLossFinal:
		x.unreplaced(d)
		x.end(d.Reason, d.Detail)
	default:
		x.end(d.Reason, d.Detail)
	}
	x.addEvent(string(d.On), d.Title, x.eventDetail(d))
	x.events[len(x.events)-1].Data = d.EventData()
}

// openBarrier opens the barrier of this epoch: hosts learn it from their desired state.
func (x *lockedCluster) openBarrier() {
	x.row.GoAt = &x.now
	x.deadline(x.cfg.GoTimeout)
	x.network()
	x.raiseLive()
	x.addWrite(authorise)
}

// running: the last rank has started, seconds count from now.
func (x *lockedCluster) running() {
	at := x.lastStart()
	x.startEnds(at, lifecycle.ReasonNone)
	if x.row.RunningAt == nil {
		seen := earliest(at, x.now)
		x.row.RunningAt = &seen
	}
	x.row.StartDeadline, x.row.Reason, x.row.Detail = nil, "", ""
	x.row.ReplaceUntil, x.row.ReplaceNote = nil, ""
	x.resumeAt(at)
	x.addWrite(authorise)
}

// ignore goes on without ranks: they are no longer billed, waited for, or desired.
func (x *lockedCluster) ignore(ranks []int) {
	for _, r := range ranks {
		n := x.nodes[r]
		n.required, n.ended = false, &x.now
		x.raise[n.HostID] = true
		x.addWrite(func(ctx context.Context, w *writer) error {
			if err := metering.SetRequired(ctx, w.tx, n.LeaseID, false); err != nil {
				return err
			}
			return metering.EndLease(ctx, w.tx, n.LeaseID, x.now)
		})
	}
	x.raiseLive() // the others no longer see it among their peers
}

// countFailure counts commands that fail soon after their start, in a row.
func (x *lockedCluster) countFailure() {
	if x.row.GoAt != nil && x.now.Sub(*x.row.GoAt) < quickFailure {
		x.row.QuickFailures++
	} else {
		x.row.QuickFailures = 0
	}
}

// startAgain begins a new epoch on the ranks' hosts: what runs of the old one is stopped there.
func (x *lockedCluster) startAgain() {
	x.row.Epoch++
	x.row.GoAt, x.row.Reason, x.row.Detail = nil, "", ""
	x.deadline(x.cfg.StartTimeout)
	x.row.StartFrom = &x.now
	for _, n := range x.nodes {
		if n.ended != nil {
			continue // its rank waits for another host
		}
		x.step(n, lifecycle.NodeAgain, lifecycle.ReasonNone, "")
		n.restart(x.row.Epoch)
		lease, epoch := n.LeaseID, int(n.Epoch)
		x.addWrite(func(ctx context.Context, w *writer) error { return metering.SetEpoch(ctx, w.tx, lease, epoch) })
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
func (x *lockedCluster) end(r lifecycle.Reason, detail string) {
	x.startEnds(x.now, r)
	at := x.now
	switch {
	case r == lifecycle.ReasonWorkloadFailed:
		at = x.firstFailure()
	case r == lifecycle.ReasonCompleted:
		at = x.lastExit()
	case x.row.RunUntil != nil && x.row.GoAt != nil && x.row.RunUntil.Before(at):
		at = *x.row.RunUntil // hosts have stopped there by themselves
	}
	x.row.StopAt, x.row.EndedAt, x.row.StartDeadline = &at, &x.now, nil
	x.row.ReplaceUntil, x.row.ReplaceNote = nil, ""
	x.row.Reason, x.row.Detail = string(r), join(r.Explain(x.row.RunningAt != nil), detail)
	x.row.Secrets = nil // not needed any more
	x.withdraw(r)
	x.raiseLive()
	for _, n := range x.nodes {
		if n.ended == nil {
			n.ended = &x.now
			x.step(n, lifecycle.NodeDismissed, lifecycle.ReasonNone, "")
		}
	}
	until := x.tail(r, at)
	x.addWrite(func(ctx context.Context, w *writer) error { return metering.EndLeases(ctx, w.tx, x.row.ID, until) })
}

// firstFailure is when the first exit with an error was reported.
func (x *lockedCluster) firstFailure() time.Time {
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
func (x *lockedCluster) lastStart() time.Time {
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

// lastExit is when the last rank ended: what hosts and servers take to learn of it, or an outage between, costs no one
// anything.
func (x *lockedCluster) lastExit() time.Time {
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

func (x *lockedCluster) deadline(d time.Duration) {
	t := x.now.Add(d)
	x.row.StartDeadline = &t
}

// raiseLive raises the revision of every host of the cluster whose lease is not gone.
func (x *lockedCluster) raiseLive() {
	for _, n := range x.nodes {
		if n.gone == nil {
			x.raise[n.HostID] = true
		}
	}
}

// raisePeers raises the revision of every host that has another rank than n.
func (x *lockedCluster) raisePeers(n *node) {
	for _, m := range x.nodes {
		if m != n && m.gone == nil {
			x.raise[m.HostID] = true
		}
	}
}

// byLease finds a node by its lease; nil when the lease is not the node's present one.
func (x *lockedCluster) byLease(l id.Lease) *node {
	for _, n := range x.nodes {
		if n.LeaseID == l {
			return n
		}
	}
	return nil
}

// The texts for renters about a fault that does not end the cluster: what happened, what it means for the bill, what to
// do. Faults that end it have Reason.Explain.

const (
	suspended = "Nothing is charged from the last moment at which every rank was proven up, until it is again."
	goesOn    = "Seconds count for the remaining ranks alone, once they are all proven up."
	restarted = "What ran until then is charged, and nothing more until every rank has started again."
)

// eventDetail is the detail of a transition's line in the timeline.
func (x *lockedCluster) eventDetail(d lifecycle.Decision) string {
	what := join(d.Reason.Happened(), d.Detail)
	switch d.On {
	case lifecycle.OnNodeLost:
		return lifecycle.Sentences(what, x.doubtSentence(d), suspended, x.ifItStaysAway(d))
	case lifecycle.OnRankIgnored:
		return lifecycle.Sentences(what, goesOn, d.Reason.Credited(),
			"If your program needs every rank, release the cluster and rent "+
				"again; on_node_failure: replace lets another host take a lost one.")
	case lifecycle.OnReplacing:
		return lifecycle.Sentences(what, d.Reason.Charged(), sought(*x.row.ReplaceUntil))
	case lifecycle.OnRestart:
		return lifecycle.Sentences(what, restarted, fmt.Sprintf("Read the log of the rank that failed first; after %d "+
			"failures in a "+
			"row, each within a minute of its start, the command is given up.", maxQuickFailures))
	}
	return what
}

// ifItStaysAway is what comes of a silent rank; "" of one that is lost for good, because the next text says that.
func (x *lockedCluster) ifItStaysAway(d lifecycle.Decision) string {
	f := x.facts()
	if d.Reason == lifecycle.ReasonPeersUnreachable {
		return ""
	}
	for _, n := range f.Nodes {
		if slices.Contains(d.Ranks, n.Rank) && n.IsFinal(f) {
			return ""
		}
	}
	then := "the cluster ends"
	switch {
	case f.Ignore:
		then = "the others go on without it"
	case f.Replace:
		then = "another host takes it"
	}
	return fmt.Sprintf("You need do nothing: if the rank is not back within %d s, %s.", int(f.LossGrace.Seconds()), then)
}

// notifyIgnored writes to the renter: who chose ignore may look at nothing for days.
func (x *lockedCluster) notifyIgnored(d lifecycle.Decision) {
	x.notifyRenter("ignored", d.Ranks, notify.Notice{
		Severity: notify.Warn,
		Title:    fmt.Sprintf("%s goes on without %s", x.row.Name, rankList(d.Ranks)),
		Body:     x.eventDetail(d),
	})
}
