package agent

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
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
func (s *storage) flushStuck(ctx context.Context, r *run, v view) (stuck bool) {
	if !v.buckets.uploading {
		return false
	}
	r.flushing, stuck = r.flushing.next(s.bootMS(), v.buckets.uploads, func() int64 {
		s.network.mu.Lock()
		s.network.countMounts(ctx, r.ref)
		s.network.mu.Unlock()
		s.runs.mu.Lock()
		defer s.runs.mu.Unlock()
		return r.rec.Traffic.Up
	})
	return stuck
}

// flush waits until what a run's volumes have that is not durable yet is committed and their sessions are closed, and
// until its buckets are uploaded: after its end, for a time that is bounded.
func (s *storage) flush(ctx context.Context, r *run, v view) (time.Duration, error) {
	over := func(why string) (time.Duration, error) {
		if why != "" {
			s.log.Warn("a volume keeps what was last committed", "lease", r.ref, "reason", why)
		}
		var lost []agentapi.NotUploaded
		if v.rec.Started && v.buckets.uploading { // after a restart of the host all that was not uploaded is lost
			lost = s.mounts.lostUploads(r, v, why)
			s.log.Warn("not all of the buckets was uploaded", "lease", r.ref, "reason", why, "buckets", len(lost))
		}
		return 0, s.runs.change(r, func(rec *record) { rec.Flushed, rec.NotUploaded = true, lost })
	}
	waited := s.bootMS() - v.rec.FlushBoot
	switch {
	case !v.rec.Started, v.superseded && !v.buckets.uploading:
		return over("")
	case v.volumes.closed && !v.buckets.uploading:
		return over(v.volumes.refused)
	case v.rec.BootID != v.boot:
		return over("the host was restarted")
	case v.rec.FlushBoot == 0:
		return 0, s.runs.change(r, func(rec *record) { rec.FlushBoot = s.bootMS() })
	case waited > agentapi.VolumeFlushMaxS*1000, v.superseded && waited > supersededFlush.Milliseconds():
		return over("the time for it is over")
	case v.dismissed && !s.attachedAny(r.ref, v) && !s.mounts.knowsBuckets(r.ref, v):
		return over("the agent was restarted, and the lease's keys are gone")
	case s.flushStuck(ctx, r, v) && v.volumes.closed:
		return over("nothing was uploaded any more")
	}
	s.runs.setStatus(r, func(st agentapi.LeaseStatus) agentapi.LeaseStatus {
		st.Progress.WaitingFor = "the last snapshot of the node's volumes is being stored"
		if v.volumes.closed {
			st.Progress.WaitingFor = "the node's buckets are being uploaded"
		}
		st.Progress.Uploads = r.uploadsToReport(v, s.now())
		return st
	})
	return watchEvery / 4, nil
}
