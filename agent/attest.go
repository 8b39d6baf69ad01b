package agent

import (
	"time"

	"github.com/musterhq/muster/agent/container"
	"github.com/musterhq/muster/agent/journal"
	"github.com/musterhq/muster/internal/agentapi"
)

// well reports whether a run that was seen is well, where the step says it.
func (a *Agent) well(v view, s step, sick string) bool {
	switch s.do {
	case actWatch, actSetPeers, actSetRelays, actStartOverlay:
		return v.rec.Started && v.overlay && sick == "" && v.scratchLost == ""
	}
	return false
}

// watch is how long a running node needs no look: less when a silent peer is about to count as down, so that a report
// after that moment includes it.
func (v view) watch() time.Duration {
	wait := watchEvery
	for _, p := range v.peerStatus {
		if left := time.Duration(agentapi.PeerSilenceMS-p.SilentMS) * time.Millisecond; left >= 0 {
			wait = min(wait, left+10*time.Millisecond)
		}
	}
	return max(wait, watchLeast)
}

// attest has the journal sign how a run is: s is what is done for it next, the zero step when it could not be seen.
// Call it before the same is reported, so that the report carries the segment that ends with a change.
func (a *Agent) attest(r *run, v view, s step) {
	if !v.rec.Started || v.rec.BootID != v.boot || v.rec.Outcome != nil {
		return
	}
	a.mu.Lock()
	hidden := a.hides(r)
	a.mu.Unlock()
	if hidden && (s.do == "" || s.do == actStartOverlay) {
		return // this process has not found the overlay yet: that says nothing of how the rank was meanwhile
	}
	c := journal.Condition{Up: a.well(v, s, a.sick(v.spec().GPUs...)), Tail: v.dismissed || v.superseded, Deaf: v.deaf}
	if s.do == actConclude { // nothing new was seen of how it was
		a.mu.Lock()
		c.Up = r.status.Good
		a.mu.Unlock()
	}
	if s.do != "" && v.work.State == container.Running {
		c.SeenBootMS = v.seenBoot
	}
	if err := a.journal.Note(r.ref, c); err != nil {
		a.log.Error("what a lease's host attests could not be noted", "lease", r.ref, "err", err)
	}
}
