package update

import (
	"fmt"

	"github.com/musterhq/muster/internal/agentapi"
)

// maxAttempts is how often a version on trial is started. It is more than one because the machine may restart
// meanwhile.
const maxAttempts = 3

// move is the launcher's next step.
type move string

const (
	moveRun     move = "run"     // execute the current version
	moveTry     move = "try"     // start the version on trial and watch it
	movePromote move = "promote" // it has proven itself: make it current
	moveClose   move = "close"   // it is current: record the end of the trial
	moveGiveUp  move = "give_up" // record that the trial failed
	moveForget  move = "forget"  // an operator has installed another version since: forget the trial
)

// next decides from the disk alone, so a launcher that was killed anywhere resumes there. For moveGiveUp, why is the
// reason.
func next(m memory, current string, installed, proven bool) (do move, why string) {
	t := m.Trial
	switch {
	case t == nil:
		return moveRun, ""
	case t.Version == current:
		return moveClose, ""
	case t.From != current:
		return moveForget, ""
	case proven && installed:
		return movePromote, ""
	case !installed:
		return moveGiveUp, "its files are gone"
	case t.TimedOut:
		return moveGiveUp, t.Trouble
	case t.Attempts >= maxAttempts:
		return moveGiveUp, fmt.Sprintf("it ended %d times before it had proven itself: %s", t.Attempts, t.Trouble)
	}
	return moveTry, ""
}

// hostsFault are ends of a run that the agent itself may have caused.
var hostsFault = map[string]bool{
	agentapi.ReasonHostInterrupted: true, agentapi.ReasonRuntimeFailed: true, agentapi.ReasonOverlayFailed: true,
	agentapi.ReasonGuestDied: true,
}

// unproven returns what a report of the version on trial lacks to count as healthy, or "". Every lease that was healthy
// under the previous version must be healthy, or must have ended in a way that the host did not cause.
func unproven(t *trial, r Report) string {
	if !r.Committed {
		return "no report of it was taken by the server"
	}
	if !r.Full {
		return "it has not seen yet all that runs here"
	}
	for _, ref := range t.Good {
		for _, st := range r.Leases {
			if st.LeaseRef != ref {
				continue
			}
			switch {
			case st.State == agentapi.NodeFailed && hostsFault[st.Reason]:
				return fmt.Sprintf("lease %s, which was well, has failed: %s", ref, st.Reason)
			case st.State == agentapi.NodeReady && !st.Good && st.ExitCode == nil:
				return fmt.Sprintf("lease %s, which was well, is not: %s", ref, st.Trouble)
			}
		}
	}
	return ""
}

// worse lists what the doctor finds bad now and did not find before.
func worse(now, before []string) (out []string) {
	had := map[string]bool{}
	for _, b := range before {
		had[b] = true
	}
	for _, n := range now {
		if !had[n] {
			out = append(out, n)
		}
	}
	return out
}
