package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/notify"
)

// What a renter is told of a fault that does not end the cluster: what happened, what it means for the bill, what to
// do. Faults that end it have Reason.Explain.

const (
	suspended = "Nothing is charged from the last moment at which every rank was proven up, until it is again."
	goesOn    = "Seconds count for the remaining ranks alone, once they are all proven up."
	restarted = "What ran until then is charged, and nothing more until every rank has started again."
)

// eventDetail is the detail of a transition's line in the timeline.
func (x *lockedCluster) eventDetail(d Decision) string {
	what := join(d.Reason.Happened(), d.Detail)
	switch d.On {
	case OnNodeLost:
		return words(what, x.doubtSentence(d), suspended, x.ifItStaysAway(d))
	case OnRankIgnored:
		return words(what, goesOn, d.Reason.credited(), "If your program needs every rank, release the cluster and rent "+
			"again; on_node_failure: replace lets another host take a lost one.")
	case OnReplacing:
		return words(what, d.Reason.charged(), sought(*x.row.ReplaceUntil))
	case OnRestart:
		return words(what, restarted, fmt.Sprintf("Read the log of the rank that failed first; after %d failures in a "+
			"row, each within a minute of its start, the command is given up.", maxQuickFailures))
	}
	return what
}

// ifItStaysAway is what comes of a silent rank; "" of one that is lost for good, for that is told next.
func (x *lockedCluster) ifItStaysAway(d Decision) string {
	f := x.facts()
	if d.Reason == ReasonPeersUnreachable {
		return ""
	}
	for _, n := range f.Nodes {
		if slices.Contains(d.Ranks, n.Rank) && n.finally(f) {
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
func (x *lockedCluster) notifyIgnored(d Decision) {
	x.notifyRenter("ignored", d.Ranks, notify.Notice{
		Severity: notify.Warn,
		Title:    fmt.Sprintf("%s goes on without %s", x.row.Name, rankList(d.Ranks)),
		Body:     x.eventDetail(d),
	})
}

// charged is what a loss by this reason means for the bill of a cluster that has run.
func (r Reason) charged() string { return words(chargedProven, r.credited()) }

func (r Reason) credited() string {
	if slices.Contains(hostFaults, r) {
		return creditedHour
	}
	return ""
}

// words puts sentences together; empty ones are left out.
func words(sentences ...string) string {
	return strings.Join(strings.Fields(strings.Join(sentences, " ")), " ")
}
