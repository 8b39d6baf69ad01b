package agent

import (
	"time"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/journal"
	"github.com/musterhq/muster/internal/agentapi"
)

// well reports whether a run that was observed is well, for the steps at which this is known.
func (v view) well(s step, sick string) bool {
	switch s.do {
	case actWatch, actSetPeers, actSetRelays, actStartOverlay:
		return v.rec.Started && v.overlay && sick == "" && v.scratchLost == "" && v.volumes.lost == "" &&
			v.partitionLost == ""
	}
	return false
}

// watch returns how long a running node needs no look: less if a silent peer is about to count as down, so that a
// report after that moment includes it.
func (v view) watch() time.Duration {
	wait := watchEvery
	for _, p := range v.peerStatus {
		if left := time.Duration(agentapi.PeerSilenceMS-p.SilentMS) * time.Millisecond; left >= 0 {
			wait = min(wait, left+10*time.Millisecond)
		}
	}
	return max(wait, watchLeast)
}

// attest makes the journal sign the condition of a run. s is the run's next step, the zero step if the run could not be
// observed. Call attest before the same condition is reported, so that the report carries the segment that ends with a
// change.
func (a *Agent) attest(r *run, v view, s step) {
	if !v.rec.Started || v.rec.BootID != v.boot || v.rec.Outcome != nil {
		return
	}
	a.runs.mu.Lock()
	hidden := a.hides(r)
	a.runs.mu.Unlock()
	if hidden && (s.do == "" || s.do == actStartOverlay) {
		return // this process has not found the overlay yet: the rank's condition in between is unknown
	}
	c := journal.Condition{Up: v.well(s, a.use.sick(v.spec().GPUs...)), Tail: v.dismissed || v.superseded, Deaf: v.deaf}
	if s.do == actConclude { // no new observation of the condition
		a.runs.mu.Lock()
		c.Up = r.status.Good
		a.runs.mu.Unlock()
	}
	if s.do != "" && v.work.State == container.Running {
		c.SeenBootMS = v.seenBoot
	}
	if err := a.journal.Note(r.ref, c); err != nil {
		a.log.Error("what a lease's host attests could not be noted", "lease", r.ref, "err", err)
	}
}
