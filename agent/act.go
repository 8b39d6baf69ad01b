package agent

import (
	"context"
	"errors"
	"time"

	"github.com/musterhq/muster/agent/container"
	"github.com/musterhq/muster/agent/image"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

const (
	watchEvery = 2 * time.Second // how often a running node is looked at when nothing tells
	watchLeast = 200 * time.Millisecond
	longWait   = 15 * time.Second
)

// act does a step. It returns how long to wait before the next look; 0 is at once.
func (a *Agent) act(ctx context.Context, l *lease, r *run, v view, s step) (time.Duration, error) {
	switch s.do {
	case actPull:
		return 0, a.pull(ctx, r, v)
	case actMakeScratch:
		return 0, a.makeScratch(ctx, r, v)
	case actStartGuest:
		return 0, a.startGuest(ctx, r, v)
	case actStartAgain:
		return 0, a.startAgain(ctx, r, v, s)
	case actStartOverlay:
		return 0, a.startOverlay(ctx, l, r, v)
	case actSetPeers:
		return 0, a.setPeers(ctx, r, v)
	case actSetRelays:
		return 0, a.setRelays(ctx, r, v)
	case actPreflight:
		return 0, a.preflight(ctx, l, r, v)
	case actStandBy:
		return 0, a.standBy(ctx, r, v)
	case actStartWork:
		return 0, a.startWork(ctx, r, v)
	case actAwaitStart:
		if err := r.files.OpenBarrier(r.ref); err != nil { // again: an agent may die between its note and the release
			return 0, err
		}
		return a.awaitWorkload(ctx, l, r, v)
	case actAwaitInit:
		return a.awaitWorkload(ctx, l, r, v)
	case actOpenBarrier:
		if err := a.change(r, func(rec *record) { rec.BarrierOpened, rec.BarrierBoot = true, a.cfg.BootMS() }); err != nil {
			return 0, err
		}
		if err := r.files.OpenBarrier(r.ref); err != nil {
			return 0, err
		}
		return a.awaitWorkload(ctx, l, r, v)
	case actNoteStart:
		if err := a.noteStart(ctx, r, v); err != nil {
			return 0, err
		}
		a.mu.Lock()
		v.rec = r.rec
		a.mu.Unlock()
		a.report(r, v, step{do: actWatch}) // at once: the cluster runs when its last rank has said so
		return 0, nil
	case actWatch:
		return v.watch(), nil
	case actAwaitPeers:
		return watchEvery, a.withdraw(ctx, r, v)
	case actAwaitGo:
		return watchEvery, nil
	case actConclude:
		return 0, a.conclude(r, v, s.outcome)
	case actStopWork:
		return 0, a.stopWork(ctx, r, v)
	case actKeepLog:
		return 0, a.keepLog(ctx, r, v)
	case actTearDown:
		return 0, a.tearDown(ctx, r)
	case actWipe:
		return 0, a.wipe(ctx, r, v)
	case actForget:
		return 0, a.forget(r)
	}
	return longWait, nil
}

// overlayTries is how often an overlay is started before the node counts as failed, and overlayPatience how long that
// takes at least: a run that is kicked tries again sooner than its pauses are.
const overlayTries, overlayPatience = 5, 15 * time.Second

// scratchTries and scratchPatience are the same of a scratch.
const scratchTries, scratchPatience = 5, 15 * time.Second

// pullPatience is for how long a registry that does not answer is asked again before the node counts as failed.
const pullPatience = time.Minute

// refusals is how often, and refusalPatience for how long at least, the runtime's refusal is asked for again: a
// container that was killed while it was being started, or an engine that is coming back, looks like one.
const refusals, refusalPatience = 3, 3 * time.Second

// final is the outcome of an error that repeating does not mend; nil when it may. The step has failed tries times in a
// row before, and failing is how long ago it did first.
func final(do action, err error, tries int, failing time.Duration) *outcome {
	var img *image.Error
	var away *image.Away
	var refusal container.Refusal
	switch {
	case errors.As(err, &img):
		return failed(img.Reason, img.Detail)
	case errors.As(err, &away) && failing >= pullPatience:
		return failed(agentapi.ReasonRegistryAway, away.Sentence())
	case errors.As(err, &refusal) && (refusal.Reason != agentapi.ReasonRuntimeFailed || tries >= refusals &&
		failing >= refusalPatience):
		return failed(refusal.Reason, refusal.Detail)
	case do == actMakeScratch && tries >= scratchTries && failing >= scratchPatience:
		return failed(agentapi.ReasonScratchFailed, safe(err))
	case do == actStartOverlay && tries >= overlayTries && failing >= overlayPatience:
		return failed(agentapi.ReasonOverlayFailed, safe(err))
	}
	return nil
}

// safe is what people may read of an error.
func safe(err error) string {
	if f := fault.From(err); f != nil {
		return f.Message
	}
	var away *image.Away
	if errors.As(err, &away) {
		return away.Sentence() + "; it is asked again"
	}
	return "a step failed on the host and is tried again"
}
