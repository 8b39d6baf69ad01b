package update

import (
	"fmt"

	"github.com/musterhq/muster/internal/agentapi"
)

// maxAttempts is how often a version on trial is started. More than once: the machine may be restarted meanwhile.
const maxAttempts = 3

// move is what the launcher does next.
type move string

const (
	moveRun     move = "run"     // become the current version
	moveTry     move = "try"     // start the version on trial and watch it
	movePromote move = "promote" // it has proven itself: make it the current one
	moveClose   move = "close"   // it is the current one: note the end of the trial
	moveGiveUp  move = "give_up" // note that it failed
	moveForget  move = "forget"  // it was of another version's time: somebody has installed one by hand since
)

// next decides by what is on the disk alone, so a launcher that was killed anywhere goes on where it was. why says, of
// moveGiveUp, what was wrong.
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

// hostsFault are ends of a run that the agent itself may have brought about.
var hostsFault = map[string]bool{
	agentapi.ReasonHostInterrupted: true, agentapi.ReasonRuntimeFailed: true, agentapi.ReasonOverlayFailed: true,
	agentapi.ReasonGuestDied: true,
}

// unproven says what a report of the version on trial lacks for it to count as well, or "". Every lease that was well
// under the version before must be well, or have ended in a way that is not the host's doing.
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

// worse lists what the doctor finds bad now and did not before.
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
