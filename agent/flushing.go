package agent

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// flushing is how far the upload of a run's buckets has come since it ended. A restarted agent begins again. Only the
// worker uses it.
type flushing struct {
	began bool
	left  agentapi.Uploads // when it last progressed
	moved int64            // bytes that the mounts had sent by then
	atMS  int64            // CLOCK_BOOTTIME of that moment
}

const (
	// flushFailing is how long a run waits for buckets of which nothing is uploaded while a store fails, and
	// flushSilent how long if no store has failed: one that does not answer may have all bytes and still work.
	flushFailing, flushSilent = time.Minute, 5 * time.Minute
	// flushStep is how many bytes sent are progress: a file counts as uploaded only as a whole.
	flushStep = 1 << 20
)

// next returns the progress at a moment, and whether the upload is stuck. sent counts what the mounts have sent. It is
// called only to find out whether there was progress that left does not show.
func (f flushing) next(nowMS int64, left agentapi.Uploads, sent func() int64) (next flushing, stuck bool) {
	fresh := flushing{began: true, left: left, atMS: nowMS}
	wait := flushSilent
	if left.Problem != "" {
		wait = flushFailing
	}
	switch {
	case !f.began:
		fresh.moved = sent()
		return fresh, false
	case left.Files < f.left.Files, left.Bytes < f.left.Bytes:
		fresh.moved = sent()
		return fresh, false
	case nowMS-f.atMS < wait.Milliseconds():
		f.left.Files, f.left.Bytes = max(f.left.Files, left.Files), max(f.left.Bytes, left.Bytes)
		return f, false
	}
	if fresh.moved = sent(); fresh.moved-f.moved >= flushStep {
		return fresh, false
	}
	return f, true
}

// flushStuck reports whether nothing of a run's buckets is being uploaded any more.
func (a *Agent) flushStuck(ctx context.Context, r *run, v view) (stuck bool) {
	if !v.buckets.uploading {
		return false
	}
	r.flushing, stuck = r.flushing.next(a.cfg.BootMS(), v.buckets.uploads, func() int64 {
		a.admitting.Lock()
		a.countMounts(ctx, r.ref)
		a.admitting.Unlock()
		a.mu.Lock()
		defer a.mu.Unlock()
		return r.rec.Traffic.Up
	})
	return stuck
}

// freeGPUs makes sure that nothing of an ended run is left but what its uploads need: no memory of its GPUs is in use,
// they compute, and its own scratch is removed. From then on the server may give the GPUs to another lease, so nothing
// of this run touches them again.
func (a *Agent) freeGPUs(ctx context.Context, r *run, v view) error {
	if gpus := v.spec().GPUs; !a.cfg.Simulated && len(gpus) > 0 && v.rec.ImageID != "" {
		ctx, cancel := context.WithTimeout(ctx, a.cfg.CleanIn)
		defer cancel()
		if err := a.cfg.GPUs.WaitClean(ctx, gpus...); err != nil {
			return fault.Wrap(err, fault.Unavailable, "memory of the lease's GPUs is still in use")
		}
	}
	if gpus := v.spec().GPUs; a.cfg.Engine.Checks() && len(gpus) > 0 && v.rec.WorkID != "" && !v.superseded {
		a.checkGPUs(ctx, gpus) // a later epoch of the lease checks them itself
	}
	a.leavePartition(ctx, r, v)
	if err := a.dropScratch(r, v); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the lease's scratch cannot be taken away")
	}
	return a.change(r, func(rec *record) { rec.GPUsFree = true })
}
