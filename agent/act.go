package agent

import (
	"context"
	"errors"
	"time"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/image"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

const (
	watchEvery = 2 * time.Second // time between looks at a running node when no event causes one
	watchLeast = 200 * time.Millisecond
	longWait   = 15 * time.Second
)

// act performs a step. It returns how long to wait before the next look; 0 means at once.
func (a *Agent) act(ctx context.Context, l *lease, r *run, v view, s step) (time.Duration, error) {
	switch s.do {
	case actPull:
		return 0, a.pull(ctx, r, v)
	case actMakeScratch:
		return 0, a.storage.makeScratch(ctx, r, v)
	case actMakeVolumes:
		return 0, a.storage.makeVolumes(ctx, r, v)
	case actRestore:
		return a.storage.restore(r, v)
	case actMountBuckets:
		return v.buckets.wait()
	case actMountLazies:
		return v.lazies.wait()
	case actFreeGPUs:
		return 0, a.freeGPUs(ctx, r, v)
	case actFlush:
		return a.storage.flush(ctx, r, v)
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
		if err := r.files.OpenBarrier(r.ref); err != nil { // repeated: the agent may die between note and release
			return 0, err
		}
		return a.awaitWorkload(ctx, l, r, v)
	case actAwaitInit:
		return a.awaitWorkload(ctx, l, r, v)
	case actOpenBarrier:
		if err := a.runs.change(r, func(rec *record) {
			rec.BarrierOpened, rec.BarrierBoot = true, a.cfg.BootMS()
		}); err != nil {
			return 0, err
		}
		if err := r.files.OpenBarrier(r.ref); err != nil {
			return 0, err
		}
		return a.awaitWorkload(ctx, l, r, v)
	case actNoteStart:
		if err := a.metering.start(ctx, r, v); err != nil {
			return 0, err
		}
		a.runs.mu.Lock()
		v.rec = r.rec
		a.runs.mu.Unlock()
		a.report(r, v, step{do: actWatch}) // at once: the cluster runs once its last rank has reported this
		return 0, nil
	case actWatch:
		return v.watch(), nil
	case actKill:
		return 0, a.killOverdrawn(ctx, r)
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

// overlayTries is how often the agent tries to start an overlay before the node counts as failed. overlayPatience is
// the minimum time that these tries take: a kick makes a run try again before its pause is over.
const overlayTries, overlayPatience = 5, 15 * time.Second

// scratchTries and scratchPatience are the same limits for making a scratch.
const scratchTries, scratchPatience = 5, 15 * time.Second

// pullPatience is how long the agent retries a registry that does not answer before the node counts as failed.
const pullPatience = time.Minute

// refusals is how often, and refusalPatience for how long at least, the agent retries after the runtime refused: a
// container that was killed while it was starting, or an engine that is restarting, looks like a refusal.
const refusals, refusalPatience = 3, 3 * time.Second

// final returns the outcome of an error that retrying cannot fix, or nil if it may be fixed. tries is how often the
// step has failed in a row before, and failing is the time since the first of these failures.
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
	case do == actMakeVolumes && tries >= scratchTries && failing >= scratchPatience:
		return failed(agentapi.ReasonScratchFailed, safe(err))
	case do == actRestore && failing >= restorePatience:
		return failed(agentapi.ReasonRestoreFailed, safe(err))
	case errors.As(err, new(hostFault)) && failing >= bucketPatience:
		return failed(agentapi.ReasonRuntimeFailed, safe(err))
	case do == actMountLazies && failing >= restorePatience:
		return failed(agentapi.ReasonRestoreFailed, safe(err))
	case do == actMountBuckets && failing >= bucketPatience:
		return failed(agentapi.ReasonBucketUnusable, safe(err))
	case errors.As(err, new(sharedError)) && failing >= sharedPatience:
		return failed(agentapi.ReasonSharedUnusable, safe(err))
	case do == actStartOverlay && tries >= overlayTries && failing >= overlayPatience:
		return failed(agentapi.ReasonOverlayFailed, safe(err))
	}
	return nil
}

// safe returns the part of an error that people may read.
func safe(err error) string {
	if f := fault.From(err); f != nil {
		return f.Message
	}
	if s := (sharedError{}); errors.As(err, &s) {
		return clipped(s.Error())
	}
	var away *image.Away
	if errors.As(err, &away) {
		return away.Sentence() + "; it is asked again"
	}
	return "a step failed on the host and is tried again"
}
