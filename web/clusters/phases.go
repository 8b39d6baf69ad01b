package clusters

import (
	"time"

	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/web/view"
)

// steps are the steps of a start as the page shows them, and the node state that stands for each.
var steps = []struct {
	name  string
	state lifecycle.NodeState
}{
	{"Placing", lifecycle.NodePending},
	{"Pulling", lifecycle.NodePulling},
	{"Starting", lifecycle.NodeStarting},
	{"Joining", lifecycle.NodeJoining},
	{"Ready", lifecycle.NodeReady},
}

// phases returns the steps of the first start. The slowest rank determines the step, because nothing is billed before
// the last rank is ready.
func phases(c cluster.Cluster, events []cluster.Event, now time.Time) []Phase {
	entered := stepTimes(c, events)
	at := 0 // the current or last step of the slowest rank
	for at+1 < len(steps) && !entered[at+1].IsZero() {
		at++
	}
	out := make([]Phase, 0, len(steps)+1)
	for i, st := range steps {
		p := Phase{Name: st.name}
		switch {
		case c.RunningAt != nil && i == len(steps)-1:
			p.Time = view.Dur(c.RunningAt.Sub(entered[i]))
			p.Note = "all ranks ready"
		case c.RunningAt != nil || i < at:
			p.Time = view.Dur(entered[i+1].Sub(entered[i]))
			p.Note = phaseNote(c, st.state)
		case i > at || entered[i].IsZero():
			p.Class = "todo"
		case c.State.Ended():
			p.Class = "fail"
		default:
			p.Class, p.Note = "now", waitingFor(c, now)
		}
		if c.RunningAt != nil && entered[i].IsZero() {
			p.Time = "" // a step without an event
		}
		out = append(out, p)
	}
	last := Phase{Name: "Running", Class: "todo", Note: "the meter opens here"}
	switch {
	case c.RunningAt != nil:
		last = Phase{Name: "Running", Class: "end", Time: view.Clock(*c.RunningAt, now), Note: "meter opened here"}
	case c.State.Ended():
		last.Note = "not reached, nothing billed"
	}
	return append(out, last)
}

// stepTimes returns when the last rank entered each step of the first start; zero if not all ranks have.
func stepTimes(c cluster.Cluster, events []cluster.Event) []time.Time {
	first := make([]map[int]time.Time, len(steps)) // by step: when each rank reached it
	for i := range first {
		first[i] = map[int]time.Time{}
	}
	for _, e := range events {
		if e.Rank == nil || c.RunningAt != nil && e.At.After(*c.RunningAt) {
			continue
		}
		for i := 1; i < len(steps); i++ {
			if e.Kind != "node_"+string(steps[i].state) {
				continue
			}
			for j := 1; j <= i; j++ {
				if first[j][*e.Rank].IsZero() {
					first[j][*e.Rank] = e.At
				}
			}
		}
	}
	out := make([]time.Time, len(steps))
	out[0] = c.CreatedAt
	for i := 1; i < len(steps); i++ {
		if len(first[i]) < len(c.Nodes) {
			break
		}
		for _, t := range first[i] {
			if t.After(out[i]) {
				out[i] = t
			}
		}
	}
	return out
}

// phaseNote describes a finished step.
func phaseNote(c cluster.Cluster, state lifecycle.NodeState) string {
	switch state {
	case lifecycle.NodePending:
		return view.Plural(c.Spec.GPUs(), "GPU", "GPUs") + " claimed"
	case lifecycle.NodeJoining:
		if c.Network.BusbwGbps > 0 {
			note := "all-reduce " + view.Gbps(c.Network.BusbwGbps) + " Gbit/s"
			if c.Network.OfferedGbps > 0 {
				note += ", offered " + view.Gbps(c.Network.OfferedGbps)
			}
			return note
		}
		return c.Network.CIDR
	}
	return ""
}

// stepOf returns the step that a node state stands for; 0 for states that are not part of a start.
func stepOf(s lifecycle.NodeState) int {
	for i, st := range steps {
		if st.state == s {
			return i
		}
	}
	return 0
}

// waitingFor returns the cause of the delay: what the slowest rank does or waits for.
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

// Stops is when a cluster stops, in words. All places of the pages that show it take it from here.
type Stops struct {
	Label  string // "Stops in", "Stopped"
	Value  string // "1 h 43 min"
	Note   string // "14:05: its budget is used up"
	Ahead  string // how far time is paid ahead, for the curious; "" = not shown
	Phrase string // "Stops at 14:05: its budget is used up"; "" = nothing is known to stop it
}

func stops(c cluster.Cluster, now time.Time) Stops {
	switch {
	case c.State.Ended():
		out := Stops{Label: "Stopped", Value: "–", Note: c.Reason.Happened()}
		if c.EndedAt != nil {
			out.Value = view.Clock(*c.EndedAt, now)
		}
		return out
	case c.StopsAt == nil:
		return Stops{Label: "Stops", Value: "not in sight", Note: "money lasts for more than a year"}
	}
	at := minuteClock(*c.StopsAt, now)
	out := Stops{Label: "Stops in", Value: view.Dur(c.StopsAt.Sub(now)), Note: at + ": " + c.StopsBecause.Why(),
		Phrase: "Stops at " + at + ": " + c.StopsBecause.Why()}
	if c.RunUntil != nil {
		out.Ahead = "Time is paid ahead through " + view.Clock(*c.RunUntil, now) + " and extended while money lasts."
	}
	return out
}

// minuteClock formats a time that is more than ten minutes away without seconds, because it is an estimate.
func minuteClock(t, now time.Time) string {
	s := view.Clock(t, now)
	if t.Sub(now) > 10*time.Minute {
		return s[:len(s)-len(":05")]
	}
	return s
}
