package web

import (
	"time"

	"github.com/musterhq/muster/internal/cluster"
	"github.com/musterhq/muster/web/view"
)

// steps of a start as people see them, and the node state that stands for each.
var steps = []struct {
	name  string
	state cluster.NodeState
}{
	{"Placing", cluster.NodePending},
	{"Pulling", cluster.NodePulling},
	{"Starting", cluster.NodeStarting},
	{"Joining", cluster.NodeJoining},
	{"Ready", cluster.NodeReady},
}

// phases are the steps of the first start: the slowest rank counts, since nothing is billed before the last is ready.
func phases(c cluster.Cluster, events []cluster.Event, now time.Time) []view.Phase {
	at := 0
	slowest := len(steps) - 1
	for _, n := range c.Nodes {
		slowest = min(slowest, stepOf(n.State))
	}
	if c.RunningAt != nil || c.State.Ended() {
		at = len(steps)
	} else {
		at = slowest
	}
	var out []view.Phase
	for i, st := range steps {
		p := view.Phase{Name: st.name}
		switch {
		case i < at:
		case i == at:
			p.Class = "now"
			p.Note = waitingFor(c, now)
		default:
			p.Class = "todo"
		}
		out = append(out, p)
	}
	last := view.Phase{Name: "Running", Class: "todo", Note: "the meter opens here"}
	switch {
	case c.RunningAt != nil:
		last = view.Phase{Name: "Running", Class: "end", Time: view.Clock(*c.RunningAt, now), Note: "meter opened here"}
	case c.State.Ended():
		last = view.Phase{Name: "Not reached", Class: "fail", Note: c.Reason.Happened()}
	}
	return append(out, last)
}

func stepOf(s cluster.NodeState) int {
	for i, st := range steps {
		if st.state == s {
			return i
		}
	}
	return 0
}

// waitingFor is the cause of the delay: what the slowest rank does or waits for.
func waitingFor(c cluster.Cluster, now time.Time) string {
	text, slowest := "", len(steps)
	for _, n := range c.Nodes {
		if k := stepOf(n.State); k < slowest {
			slowest = k
			text, _ = progress(n, now)
		}
	}
	return text
}
