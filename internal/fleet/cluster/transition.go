package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
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
	x.life.assess()
	if err := readBonds(ctx, tx.Q, x); err != nil {
		return err
	}
	if err := x.life.applyTransitions(); err != nil {
		return err
	}
	return m.writer(tx, x).commit(ctx)
}

// maxSteps bounds how many transitions follow from one set of facts: at barrier, started, exited, gone.
const maxSteps = 8

// life takes a locked cluster and its nodes through their transitions.
type life struct {
	cfg       *Config
	now       time.Time
	row       *dbq.Cluster
	spec      market.Spec
	out       *effects
	members   *members
	news      *news
	billing   *billing
	doubts    *doubts
	preflight *preflight
	placement *placement
}

// applyTransitions applies transitions until the facts ask for no more.
func (lf *life) applyTransitions() error {
	for range maxSteps {
		d, ok := lifecycle.Next(lifecycle.State(lf.row.State), lf.facts())
		if !ok {
			return nil
		}
		lf.transition(d)
	}
	return fmt.Errorf("cluster %s finds no rest in state %s", lf.row.ID, lf.row.State)
}

const (
	// quickFailure is how soon after its start a command must fail to count towards maxQuickFailures.
	quickFailure = time.Minute
	// maxQuickFailures in a row end restart: on_failure, so that a command that cannot work does not restart indefinitely.
	maxQuickFailures = 5
)

// transition does what a decision of Next means.
func (lf *life) transition(d lifecycle.Decision) {
	lf.row.State = string(d.To)
	lf.creditLost(d)
	lf.countEnd(d)
	switch d.On {
	case lifecycle.OnAllAtBarrier:
		lf.openBarrier()
	case lifecycle.OnAllStarted:
		lf.doubts.lateStarts()
		lf.running()
	case lifecycle.OnStartTimeout:
		lf.doubts.lateStarts()
		lf.end(d.Reason, d.Detail)
	case lifecycle.OnNodeLost:
		lf.billing.doubt()
		lf.row.Reason, lf.row.Detail = string(d.Reason), lf.eventDetail(d)
	case lifecycle.OnNodeBack, lifecycle.OnResumed:
		lf.billing.resume()
		lf.row.Reason, lf.row.Detail = "", ""
	case lifecycle.OnRankIgnored:
		lf.ignore(d.Ranks)
		lf.row.Reason, lf.row.Detail = string(d.Reason), lf.eventDetail(d)
		lf.notifyIgnored(d)
	case lifecycle.OnReplacing:
		lf.giveUp(d)
	case lifecycle.OnReplaced:
		lf.replaced(d)
	case lifecycle.OnRestart:
		lf.startEnds(lf.now, d.Reason)
		lf.billing.stopWindow(lf.members.firstFailure())
		lf.countFailure()
		lf.startAgain()
	case lifecycle.OnAllGone:
	case lifecycle.OnLossFinal:
		lf.unreplaced(d)
		lf.end(d.Reason, d.Detail)
	default:
		lf.end(d.Reason, d.Detail)
	}
	lf.news.addEvent(string(d.On), d.Title, lf.eventDetail(d))
	lf.out.events[len(lf.out.events)-1].Data = d.EventData()
}

// openBarrier opens the barrier of this epoch: hosts learn it from their desired state.
func (lf *life) openBarrier() {
	lf.row.GoAt = &lf.now
	lf.deadline(lf.cfg.GoTimeout)
	lf.preflight.network()
	lf.raiseLive()
	lf.out.addWrite(authorise)
}

// running: the last rank has started, seconds count from now.
func (lf *life) running() {
	at := lf.members.lastStart()
	lf.startEnds(at, lifecycle.ReasonNone)
	if lf.row.RunningAt == nil {
		seen := earliest(at, lf.now)
		lf.row.RunningAt = &seen
	}
	lf.row.StartDeadline, lf.row.Reason, lf.row.Detail = nil, "", ""
	lf.row.ReplaceUntil, lf.row.ReplaceNote = nil, ""
	lf.billing.resumeAt(at)
	lf.out.addWrite(authorise)
}

// ignore goes on without ranks: they are no longer billed, waited for, or desired.
func (lf *life) ignore(ranks []int) {
	for _, r := range ranks {
		n := lf.members.nodes[r]
		n.required, n.ended = false, &lf.now
		lf.out.raise[n.HostID] = true
		lf.out.addWrite(func(ctx context.Context, w *writer) error {
			if err := metering.SetRequired(ctx, w.tx, n.LeaseID, false); err != nil {
				return err
			}
			return metering.EndLease(ctx, w.tx, n.LeaseID, lf.now)
		})
	}
	lf.raiseLive() // the others no longer see it among their peers
}

// countFailure counts commands that fail soon after their start, in a row.
func (lf *life) countFailure() {
	if lf.row.GoAt != nil && lf.now.Sub(*lf.row.GoAt) < quickFailure {
		lf.row.QuickFailures++
	} else {
		lf.row.QuickFailures = 0
	}
}

// startAgain begins a new epoch on the ranks' hosts: what runs of the old one is stopped there.
func (lf *life) startAgain() {
	lf.row.Epoch++
	lf.row.GoAt, lf.row.Reason, lf.row.Detail = nil, "", ""
	lf.deadline(lf.cfg.StartTimeout)
	lf.row.StartFrom = &lf.now
	for _, n := range lf.members.nodes {
		if n.ended != nil {
			continue // its rank waits for another host
		}
		lf.step(n, lifecycle.NodeAgain, lifecycle.ReasonNone, "")
		n.restart(lf.row.Epoch)
		lease, epoch := n.LeaseID, int(n.Epoch)
		lf.out.addWrite(func(ctx context.Context, w *writer) error { return metering.SetEpoch(ctx, w.tx, lease, epoch) })
	}
	lf.raiseLive()
}

// restart forgets what a node's earlier start came to.
func (n *node) restart(epoch int32) {
	n.Epoch, n.StartedAt, n.ExitCode, n.ExitAt = epoch, nil, nil, nil
	n.WgKey, n.Endpoints, n.Preflight, n.dirty = "", []string{}, []byte("{}"), true
}

// end stops everything: nothing is desired any more, nothing after the moment the run ended is billed. The window is
// closed by closeWindow, once the hosts have reported up to it.
func (lf *life) end(r lifecycle.Reason, detail string) {
	lf.startEnds(lf.now, r)
	at := lf.now
	switch {
	case r == lifecycle.ReasonWorkloadFailed:
		at = lf.members.firstFailure()
	case r == lifecycle.ReasonCompleted:
		at = lf.members.lastExit()
	case lf.row.RunUntil != nil && lf.row.GoAt != nil && lf.row.RunUntil.Before(at):
		at = *lf.row.RunUntil // hosts have stopped there by themselves
	}
	lf.row.StopAt, lf.row.EndedAt, lf.row.StartDeadline = &at, &lf.now, nil
	lf.row.ReplaceUntil, lf.row.ReplaceNote = nil, ""
	lf.row.Reason, lf.row.Detail = string(r), join(r.Explain(lf.row.RunningAt != nil), detail)
	lf.row.Secrets = nil // not needed any more
	lf.billing.withdraw(r)
	lf.raiseLive()
	for _, n := range lf.members.nodes {
		if n.ended == nil {
			n.ended = &lf.now
			lf.step(n, lifecycle.NodeDismissed, lifecycle.ReasonNone, "")
		}
	}
	until := lf.billing.tail(r, at)
	lf.out.addWrite(func(ctx context.Context, w *writer) error { return metering.EndLeases(ctx, w.tx, lf.row.ID, until) })
}

func (lf *life) deadline(d time.Duration) {
	t := lf.now.Add(d)
	lf.row.StartDeadline = &t
}

// raiseLive raises the revision of every host of the cluster whose lease is not gone.
func (lf *life) raiseLive() {
	for _, n := range lf.members.nodes {
		if n.gone == nil {
			lf.out.raise[n.HostID] = true
		}
	}
}

// raisePeers raises the revision of every host that has another rank than n.
func (lf *life) raisePeers(n *node) {
	for _, m := range lf.members.nodes {
		if m != n && m.gone == nil {
			lf.out.raise[m.HostID] = true
		}
	}
}

// The texts for renters about a fault that does not end the cluster: what happened, what it means for the bill, what to
// do. Faults that end it have Reason.Explain.

const (
	suspended = "Nothing is charged from the last moment at which every rank was proven up, until it is again."
	goesOn    = "Seconds count for the remaining ranks alone, once they are all proven up."
	restarted = "What ran until then is charged, and nothing more until every rank has started again."
)

// eventDetail is the detail of a transition's line in the timeline.
func (lf *life) eventDetail(d lifecycle.Decision) string {
	what := join(d.Reason.Happened(), d.Detail)
	switch d.On {
	case lifecycle.OnNodeLost:
		return lifecycle.Sentences(what, lf.billing.doubtSentence(d), suspended, lf.ifItStaysAway(d))
	case lifecycle.OnRankIgnored:
		return lifecycle.Sentences(what, goesOn, d.Reason.Credited(),
			"If your program needs every rank, release the cluster and rent "+
				"again; on_node_failure: replace lets another host take a lost one.")
	case lifecycle.OnReplacing:
		return lifecycle.Sentences(what, d.Reason.Charged(), sought(*lf.row.ReplaceUntil))
	case lifecycle.OnRestart:
		return lifecycle.Sentences(what, restarted, fmt.Sprintf("Read the log of the rank that failed first; after %d "+
			"failures in a "+
			"row, each within a minute of its start, the command is given up.", maxQuickFailures))
	}
	return what
}

// ifItStaysAway is what comes of a silent rank; "" of one that is lost for good, because the next text says that.
func (lf *life) ifItStaysAway(d lifecycle.Decision) string {
	f := lf.facts()
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
func (lf *life) notifyIgnored(d lifecycle.Decision) {
	lf.news.notifyRenter("ignored", d.Ranks, notify.Notice{
		Severity: notify.Warn,
		Title:    fmt.Sprintf("%s goes on without %s", lf.row.Name, rankList(d.Ranks)),
		Body:     lf.eventDetail(d),
	})
}

// facts returns what Next decides from.
func (lf *life) facts() lifecycle.Facts {
	f := lifecycle.Facts{
		Now:           lf.now,
		Go:            lf.row.GoAt != nil,
		WindowOpen:    lf.billing.sure(),
		MoneyReason:   lifecycle.Reason(lf.row.MoneyReason),
		Ignore:        lf.spec.OnNodeFailure == "ignore",
		Replace:       lf.spec.OnNodeFailure == "replace",
		LossGrace:     lf.cfg.LossGrace,
		StartSilence:  lf.cfg.StartSilence,
		StartDeadline: deref(lf.row.StartDeadline),
		MaxUntil:      deref(lf.members.maxUntil()),
		ReplaceUntil:  deref(lf.row.ReplaceUntil),
		ReplaceNote:   lf.row.ReplaceNote,
		Ran:           lf.row.RunningAt != nil,
	}
	f.Dispute = lf.doubts.disputeFacts()
	if lf.members.living() {
		f.RunUntil = deref(lf.row.RunUntil) // without a live lease nothing runs that could outlast it
	}
	whole := true
	for _, n := range lf.members.nodes {
		whole = whole && n.required
		f.Nodes = append(f.Nodes, lifecycle.NodeFacts{
			Rank:       int(n.Rank),
			State:      lifecycle.NodeState(n.State),
			Reason:     lifecycle.Reason(n.Reason),
			Detail:     n.Detail,
			Required:   n.required,
			Started:    n.StartedAt != nil,
			Exit:       intp(n.ExitCode),
			ExitSeen:   deref(n.ExitAt),
			ReportedAt: n.status.ReportedAt,
			Since:      lf.now.Add(-lf.members.silentFor(n, n.Since)),
			Gone:       n.gone != nil,
			Ended:      n.ended != nil,
			Doubted: len(lf.members.nodes) > 1 && lifecycle.NodeState(n.State) == lifecycle.NodeLost &&
				(n.bondLow || fairness.DoubtIsFinal(n.doubts, n.Since.UnixMilli())),
		})
	}
	f.RestartOnFail = whole && lf.spec.Restart == "on_failure" && lf.row.QuickFailures < maxQuickFailures
	return f
}

// step moves a node by its table. It returns false and changes nothing if the event has no meaning in the node's state.
func (lf *life) step(n *node, e lifecycle.NodeEvent, r lifecycle.Reason, detail string) bool {
	t, ok := lifecycle.NextNode(lifecycle.NodeState(n.State), e)
	if !ok {
		return false
	}
	n.State, n.Since, n.dirty = string(t.To), lf.now, true
	if e != lifecycle.NodeGone && e != lifecycle.NodeDismissed { // the reason for its end stays visible
		n.Reason, n.Detail = string(r), detail
	}
	if r == lifecycle.ReasonScratchFailed && (t.To == lifecycle.NodeFailed || t.To == lifecycle.NodeLost) {
		lf.news.notifyScratch(n, detail)
	}
	rank := n.Rank
	lf.out.events = append(lf.out.events, dbq.InsertClusterEventParams{
		ClusterID: lf.row.ID,
		At:        lf.now,
		Kind:      "node_" + string(t.To),
		Rank:      &rank,
		Title:     fmt.Sprintf("Rank %d: %s", rank, lowerFirst(t.Title)),
		Detail:    join(r.Happened(), detail),
		Data:      []byte("{}"),
	})
	return true
}
