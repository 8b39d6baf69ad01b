package agent

import (
	"context"
	"time"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
)

// lease is one worker and the runs (epochs) that it has. At most one of them is live.
type lease struct {
	id      string
	runs    []*run // by epoch
	kick    chan struct{}
	working bool
}

// run is one epoch of a lease. runs.mu guards its fields; only its lease's worker changes status and the handles,
// and rec except for Overdrawn.
type run struct {
	ref    agentapi.LeaseRef
	files  leasefiles.Layout
	rec    record
	status agentapi.LeaseStatus

	want       *agentapi.LeaseSpec
	keys       map[string][]byte // of its volumes, once it has ended
	dismissed  bool
	superseded bool
	reported   bool               // the server has committed a report in which the run is gone
	cancel     context.CancelFunc // of the present step, if it may be cancelled

	overlay    *overlay.Handle
	peers      []agentapi.Peer // last list sent to the overlay
	relays     relayAccess     // the same for relays
	tries      int             // failures of the present step in a row
	failed     time.Time       // time of the first of them
	blind      int             // failed observations in a row
	uploadsAt  time.Time       // when the uploads in status were read
	reportedAt time.Time       // last change that was worth a report
	owed       *time.Timer     // reports a change that was not worth a report by itself; nil: there is none
	looked     bool            // the status is an observation of this process, or the recorded end
	egress     egress
	flushing   flushing // of its buckets, after its end; only the worker uses it
	// withdrawn: the guest was instructed to measure with no peer, because a rank is absent. Only the worker uses it. A
	// restarted agent has not given this instruction, and the guest's measurement goes on.
	withdrawn bool

	workPID         int              // of the workload's first process at the last observation; 0: it did not run
	reportedTraffic agentapi.Traffic // in a report that was accepted
	goodSince       int64            // CLOCK_BOOTTIME since when the status has been good; 0: it is not
	hearing         overlay.Hearing  // messages received from peers; only the worker uses it
}

func (a *Agent) startWorker(l *lease) {
	if l.working {
		poke(l.kick)
		return
	}
	l.working = true
	a.workers.Go(func() { a.work(a.ctx, l) })
}

// work drives a lease's runs, the oldest first: a newer epoch waits until nothing is left of the one before.
func (a *Agent) work(ctx context.Context, l *lease) {
	for ctx.Err() == nil {
		r := a.pick(l)
		if r == nil {
			return
		}
		stepCtx, cancel := context.WithCancel(ctx)
		a.runs.mu.Lock()
		r.cancel = cancel
		a.runs.mu.Unlock()
		wait := a.step(stepCtx, l, r)
		cancel()
		if wait > 0 {
			pause(ctx, wait, l.kick)
		}
	}
}

// pick is the oldest run that is not gone, else the newest one; nil, and the worker's end, when there is none left.
func (a *Agent) pick(l *lease) *run {
	a.runs.mu.Lock()
	defer a.runs.mu.Unlock()
	if len(l.runs) == 0 {
		delete(a.runs.leases, l.id)
		l.working = false
		return nil
	}
	for _, r := range l.runs {
		if !r.rec.Gone || (r.dismissed && r.reported && !r.rec.LogKept && a.journal.Drained(r.ref)) {
			return r
		}
	}
	return l.runs[len(l.runs)-1]
}

// step does one thing for a run, and returns how long to wait before the next unless something happens.
func (a *Agent) step(ctx context.Context, l *lease, r *run) time.Duration {
	v, err := a.observe(ctx, r)
	if err != nil {
		if ctx.Err() == nil {
			a.log.Warn("cannot see how a lease is", "lease", r.ref, "err", err)
			a.attest(r, v, step{})
			a.unseen(r, err)
			v.report = guest.KeptWorkload(r.files.Guest, r.ref)
			if o := a.withoutEngine(v, a.cfg.Now()); o != nil {
				a.giveUp(r, v, o)
			}
		}
		return backOff(&r.blind)
	}
	r.blind = 0
	s := plan(v)
	a.attest(r, v, s)
	a.report(r, v, s)
	if s.do.ending() {
		ctx = context.WithoutCancel(ctx)
	}
	wait, err := a.act(ctx, l, r, v, s)
	switch {
	case err == nil:
		r.tries = 0
		return wait
	case ctx.Err() != nil:
		return 0 // given up: something changed
	}
	if r.tries == 0 {
		r.failed = a.cfg.Now()
	}
	if o := final(s.do, err, r.tries, a.cfg.Now().Sub(r.failed)); o != nil {
		a.log.Warn("lease failed", "lease", r.ref, "step", s.do, "reason", o.Reason, "err", err)
		if err := a.runs.change(r, func(rec *record) { rec.Outcome = o }); err != nil {
			a.log.Error("cannot write a lease's record", "lease", r.ref, "err", err)
		}
		return 0
	}
	a.log.Warn("step of a lease failed and is tried again", "lease", r.ref, "step", s.do, "err", err)
	a.delayed(r, err)
	return backOff(&r.tries)
}

// giveUp ends a run of which nothing can be seen. What there may be of it is removed once it can be.
func (a *Agent) giveUp(r *run, v view, o *outcome) {
	if err := a.runs.change(r, func(rec *record) { rec.Outcome = o }); err != nil {
		a.log.Error("cannot write a lease's record", "lease", r.ref, "err", err)
		return
	}
	a.log.Warn("lease failed", "lease", r.ref, "reason", o.Reason, "detail", o.Detail)
	v.rec.Outcome = o
	a.runs.setStatus(r, func(agentapi.LeaseStatus) agentapi.LeaseStatus { return statusOf(r.ref, v, agentapi.Progress{}) })
}

// backOff counts a failure and is the wait after it: 0.5 s doubling to 15 s.
func backOff(failures *int) time.Duration {
	*failures++
	return min(250*time.Millisecond<<min(*failures, 8), 15*time.Second)
}
