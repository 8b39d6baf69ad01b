package lifecycle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The rules of Next, one per event. Each checks the facts and returns its event, or none.

// Required returns the ranks without which the cluster cannot run.
func (f Facts) Required() []NodeFacts {
	return slices.DeleteFunc(slices.Clone(f.Nodes), func(n NodeFacts) bool { return !n.Required })
}

// startFailed: a rank cannot start. The first by rank gives the reason: later ones are often its consequence. What
// ranks report about the network between them comes after what is known of each rank by itself: a rank that has died
// does not respond to the others, and they blame the network. So startFailed waits until every other rank has reported
// after it, or is given up as silent.
func startFailed(f Facts) (Trigger, Decision) {
	var blames []NodeFacts
	for _, n := range f.Required() {
		switch {
		case !n.cannotStart():
		case n.State == NodeFailed && n.Reason == ReasonPreflightFailed:
			blames = append(blames, n)
		default:
			return OnStartFailed, about(n)
		}
	}
	if len(blames) == 0 {
		return "", Decision{}
	}
	for _, n := range f.Required() {
		if !n.cannotStart() && n.ReportedAt.Before(blames[0].Since) && f.Now.Sub(blames[0].Since) <= f.StartSilence {
			return "", Decision{}
		}
	}
	return OnStartFailed, about(blames[0])
}

func (n NodeFacts) cannotStart() bool {
	return n.State == NodeFailed || n.State == NodeLost || (n.State == NodeStopped && n.Exit == nil)
}

// exited: the workload ended by itself. All exit codes 0: completed, once the last rank has ended. Another code: the
// workload failed, but only once every other required rank has reported after it. Otherwise the death of a host, which
// breaks its peers' connections within a tenth of a second, would be blamed on the workload that noticed it first.
func exited(f Facts) (Trigger, Decision) {
	nodes := f.Required()
	// In the order in which they ended, as their hosts report it: what failed first is named first, whichever report
	// arrived first.
	slices.SortStableFunc(nodes, func(a, b NodeFacts) int { return a.ExitSeen.Compare(b.ExitSeen) })
	done := 0
	for _, n := range nodes {
		if n.Exit == nil {
			continue
		}
		if *n.Exit == 0 {
			done++
			continue
		}
		for _, m := range nodes {
			if m.Rank != n.Rank && m.Exit == nil && (m.State == NodeLost || m.State == NodeFailed ||
				m.ReportedAt.Before(n.ExitSeen)) {
				return "", Decision{}
			}
		}
		e := OnWorkloadFailed
		if f.RestartOnFail {
			e = OnRestart
		}
		return e, Decision{Reason: ReasonWorkloadFailed, Detail: exitCodes(nodes), Ranks: []int{n.Rank}}
	}
	if len(nodes) > 0 && done == len(nodes) {
		return OnCompleted, Decision{Reason: ReasonCompleted, Detail: exitCodes(f.Required())}
	}
	return "", Decision{}
}

func exitCodes(nodes []NodeFacts) string {
	var s []string
	for _, n := range nodes {
		if n.Exit != nil {
			s = append(s, fmt.Sprintf("rank %d exit code %d", n.Rank, *n.Exit))
		}
	}
	return strings.Join(s, ", ")
}

func startTimeout(f Facts) (Trigger, Decision) {
	if f.StartDeadline.IsZero() || f.Now.Before(f.StartDeadline) {
		return "", Decision{}
	}
	d := Decision{Reason: ReasonTimeout}
	var late []string
	for _, n := range f.Required() {
		if n.State != NodeReady || (f.Go && !n.Started) {
			d.Ranks = append(d.Ranks, n.Rank)
			what := string(n.State)
			if n.State == NodeReady {
				what = "ready, but its command has not started"
			}
			late = append(late, fmt.Sprintf("rank %d is %s", n.Rank, what))
		}
	}
	d.Detail = strings.Join(late, ", ")
	return OnStartTimeout, d
}

// progress: the barrier opens when all ranks are at it; the cluster runs when all have started.
func progress(f Facts) (Trigger, Decision) {
	nodes := f.Required()
	started := 0
	for _, n := range nodes {
		switch {
		case n.Started:
			started++
		case n.State != NodeReady:
			return "", Decision{}
		}
	}
	switch {
	case len(nodes) == 0:
		return "", Decision{}
	case started == len(nodes):
		return OnAllStarted, Decision{}
	case !f.Go:
		return OnAllAtBarrier, Decision{}
	}
	return "", Decision{}
}

// newLoss: a required rank is lost while seconds count.
func newLoss(f Facts) (Trigger, Decision) {
	if !f.WindowOpen {
		return "", Decision{}
	}
	for _, n := range f.Required() {
		if n.IsDown(f) {
			return OnNodeLost, about(n)
		}
	}
	if len(f.Dispute.Pairs) > 0 {
		return OnNodeLost, f.Dispute.about()
	}
	return "", Decision{}
}

// about returns a text with the two ranks that have lost contact.
func (d Dispute) about() Decision {
	p := d.Pairs[0]
	return Decision{
		Reason: ReasonPeersUnreachable,
		Detail: fmt.Sprintf("ranks %d and %d have lost contact with each other", p[0], p[1]),
		Ranks:  []int{p[0], p[1]},
	}
}

// undecidedFinal: ranks had lost contact for too long, and nothing shows which of them is to blame. With
// on_node_failure ignore or replace, the largest set of ranks that reach each other stays; among equal sets, the one
// with the lower ranks.
func undecidedFinal(f Facts) (Trigger, Decision) {
	d := f.Dispute
	if f.WindowOpen || len(d.Pairs) == 0 || f.Now.Sub(d.Since) < d.Grace {
		return "", Decision{}
	}
	out := d.about()
	switch {
	case f.Replace && f.Ran:
		out.Ranks = f.leaveOut()
		return OnReplacing, out
	case f.Ignore:
		out.Ranks = f.leaveOut()
		return OnRankIgnored, out
	}
	return OnLossFinal, out
}

// leaveOut returns the ranks that are not in the largest set of ranks that reach each other. It removes ranks one by
// one: among those with the most disputes, the highest.
func (f Facts) leaveOut() (out []int) {
	left := slices.Clone(f.Dispute.Pairs)
	for len(left) > 0 {
		count := map[int]int{}
		for _, p := range left {
			count[p[0]]++
			count[p[1]]++
		}
		worst := -1
		for r, n := range count {
			if worst < 0 || n > count[worst] || n == count[worst] && r > worst {
				worst = r
			}
		}
		out = append(out, worst)
		left = slices.DeleteFunc(left, func(p [2]int) bool { return p[0] == worst || p[1] == worst })
	}
	slices.Sort(out)
	return out
}

// nodeBack: every required rank is proven up again. The cluster is complete only if no rank was given up.
func nodeBack(f Facts) (Trigger, Decision) {
	nodes := f.Required()
	if f.WindowOpen || len(nodes) == 0 || len(f.Dispute.Pairs) > 0 {
		return "", Decision{}
	}
	for _, n := range nodes {
		if n.IsDown(f) {
			return "", Decision{}
		}
	}
	if len(nodes) < len(f.Nodes) {
		return OnResumed, Decision{}
	}
	return OnNodeBack, Decision{}
}

// rankIgnored: with on_node_failure ignore, the other ranks continue without the lost rank. Seconds count again once
// every remaining rank is proven up.
func rankIgnored(f Facts) (Trigger, Decision) {
	if !f.Ignore {
		return "", Decision{}
	}
	var d Decision
	left := 0
	for _, n := range f.Required() {
		switch {
		case !n.IsDown(f):
			left++
		case n.IsFinal(f):
			d.Ranks = append(d.Ranks, n.Rank)
			d.Reason, d.Detail = about(n).Reason, about(n).Detail
		}
	}
	if len(d.Ranks) == 0 || left == 0 {
		return "", Decision{}
	}
	return OnRankIgnored, d
}

// replaceable reports whether another host may take the rank: the renter wants it, and the rank was lost by its host's
// fault.
func (f Facts) replaceable(n NodeFacts) bool {
	return f.Replace && f.Ran && (about(n).Reason.IsHostFault() || about(n).Reason == ReasonHostWithdrawn)
}

// lostForGood: ranks that another host is to take. Their leases end before a host is looked for.
func lostForGood(f Facts) (Trigger, Decision) {
	if f.WindowOpen {
		return "", Decision{} // suspend first
	}
	return f.replacing(func(n NodeFacts) bool { return n.IsFinal(f) || !n.Started })
}

// lostAtStart is lostForGood while the ranks start again after a loss, a restart or a failure: nothing runs, so there
// is no reason to wait.
func lostAtStart(f Facts) (Trigger, Decision) {
	return f.replacing(func(NodeFacts) bool { return true })
}

func (f Facts) replacing(final func(NodeFacts) bool) (Trigger, Decision) {
	var d Decision
	for _, n := range f.Required() {
		if !n.Ended && n.IsDown(f) && final(n) && f.replaceable(n) {
			one := about(n)
			d.Reason, d.Detail, d.Ranks = one.Reason, list(d.Detail, one.Detail), append(d.Ranks, n.Rank)
		}
	}
	if len(d.Ranks) == 0 {
		return "", Decision{}
	}
	return OnReplacing, d
}

// lossFinal: a lost rank did not come back in time, or its host reports that it never will, and no other host took its
// place.
func lossFinal(f Facts) (Trigger, Decision) {
	if f.WindowOpen {
		return "", Decision{} // suspend first
	}
	for _, n := range f.Required() {
		if !n.IsDown(f) || !n.IsFinal(f) {
			continue
		}
		d := about(n)
		if f.replaceable(n) {
			if f.ReplaceUntil.IsZero() || f.Now.Before(f.ReplaceUntil) {
				continue
			}
			if d.Detail += "; no other host was found for it in time"; f.ReplaceNote != "" {
				d.Detail += " (" + f.ReplaceNote + ")"
			}
		}
		return OnLossFinal, d
	}
	return "", Decision{}
}

func moneyOut(f Facts) (Trigger, Decision) {
	if !f.Go || f.RunUntil.IsZero() || f.Now.Before(f.RunUntil) {
		return "", Decision{}
	}
	r := f.MoneyReason
	if r == ReasonNone {
		r = ReasonPlatformOutage // nothing was short, but no server was running to extend it
	}
	return OnMoneyOut, Decision{Reason: r}
}

func maxDuration(f Facts) (Trigger, Decision) {
	if f.MaxUntil.IsZero() || f.Now.Before(f.MaxUntil) {
		return "", Decision{}
	}
	return OnMaxDuration, Decision{Reason: ReasonMaxDuration}
}

func allGone(f Facts) (Trigger, Decision) {
	for _, n := range f.Nodes {
		if !n.Gone {
			return "", Decision{}
		}
	}
	return OnAllGone, Decision{}
}

// IsDown reports whether a rank that should run is not proven up. A rank that ended with 0 is done, not down. One that
// its host stopped at the end of the paid time is down only if more time had been paid for meanwhile.
func (n NodeFacts) IsDown(f Facts) bool {
	switch n.State {
	case NodeLost, NodeFailed:
		return true
	case NodeStopped:
		return n.Exit == nil && (n.Reason != ReasonRunUntil || f.RunUntil.Sub(f.Now) > stopSlack)
	}
	return false
}

// stopSlack is how long before run_until by PostgreSQL's clock a host may stop a node on its own: the host sends the
// command the signal to end one grace period before.
const stopSlack = StopGrace + 5*time.Second

// StopGrace is how long the processes of a lease have to end when it is stopped.
const StopGrace = 10 * time.Second

// IsFinal reports whether a rank that is down stays down: its host reports that it has failed, its GPU is broken, it
// was lost for too long, or its host was in doubt too often.
func (n NodeFacts) IsFinal(f Facts) bool {
	return n.State != NodeLost || n.Reason == ReasonGPUFailed || n.Doubted || f.Now.Sub(n.Since) >= f.LossGrace
}

func about(n NodeFacts) Decision {
	r := n.Reason.OfCluster()
	detail := fmt.Sprintf("rank %d", n.Rank)
	if n.Detail != "" {
		detail += ": " + n.Detail
	}
	return Decision{Reason: r, Detail: detail, Ranks: []int{n.Rank}}
}

// EventData returns what a program may need to know of a replacement.
func (d Decision) EventData() json.RawMessage {
	if d.On != OnReplacing && d.On != OnReplaced {
		return json.RawMessage("{}")
	}
	b, err := json.Marshal(map[string]any{"ranks": d.Ranks})
	if err != nil {
		return json.RawMessage("{}")
	}
	return b
}

// list appends an element to a list in text.
func list(a, b string) string {
	if a == "" {
		return b
	}
	return a + ", " + b
}
