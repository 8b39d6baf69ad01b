package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

func (a *Agent) conclude(r *run, v view, o *outcome) error {
	a.log.Info("lease ends", "lease", r.ref, "state", o.State, "reason", o.Reason, "detail", o.Detail)
	if f := v.report.GPUCheck; f != nil {
		f.Explain("/sys")
		a.cfg.GPUs.Checks.Record(gpucheck.Result{Failure: f}, v.spec().GPUs...)
	}
	if v.work.State != container.Running {
		if o.ExitCode != nil {
			o.ExitBoot, _ = a.metering.lastSign(r, v)
		}
		v.rec.Outcome = o
		if err := a.metering.end(r, v); err != nil {
			return err
		}
	}
	return a.runs.change(r, func(rec *record) { rec.Outcome = o })
}

// maxGrace is the longest time that a renter's program may take to end.
const maxGrace = 30 * time.Second

// grace returns how long a run's command may take to end.
func (v view) grace() time.Duration { return min(time.Duration(v.spec().GraceS)*time.Second, maxGrace) }

func (a *Agent) stopWork(ctx context.Context, r *run, v view) error {
	if err := a.journal.Cut(r.ref); err != nil {
		return err
	}
	grace := v.grace()
	if left, known := a.authorised(v.rec); known {
		grace = max(0, min(grace, left)) // time past the authorised end is not paid
	}
	if !v.rec.Started || v.rec.Outcome.Reason == agentapi.ReasonSuperseded {
		grace = 0
	}
	ctx, cancel := context.WithTimeout(ctx, grace+time.Minute)
	defer cancel()
	if len(v.spec().Buckets)+len(v.spec().Lazy) == 0 {
		return a.cfg.Engine.Stop(ctx, r.ref, container.Work, grace)
	}
	// A program that waits for a store that does not answer cannot be killed.
	stuck := time.AfterFunc(grace+bucketStuck, func() {
		a.storage.mounts.interrupt(r.ref)
	})
	defer stuck.Stop()
	return a.cfg.Engine.Stop(ctx, r.ref, container.Work, grace)
}

func (a *Agent) keepLog(ctx context.Context, r *run, v view) error {
	if err := a.metering.end(r, v); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	kept, err := a.saveLog(ctx, r)
	if err != nil {
		return err
	}
	return a.runs.change(r, func(rec *record) { rec.LogSaved, rec.LogKept = true, kept })
}

func (a *Agent) tearDown(ctx context.Context, r *run) error {
	if err := a.takeDown(ctx, r); err != nil {
		return err
	}
	return a.runs.change(r, func(rec *record) { rec.Down = true })
}

// takeDown removes a run's containers, overlay and firewall entry.
func (a *Agent) takeDown(ctx context.Context, r *run) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := a.cfg.Engine.Remove(ctx, r.ref, container.Work); err != nil {
		return err
	}
	a.storage.selves.end(r.ref)
	if err := overlay.Stop(ctx, r.files.Dir); err != nil {
		return err
	}
	if err := a.cfg.Engine.Remove(ctx, r.ref, container.Guest); err != nil {
		return err
	}
	a.network.count(ctx) // expel removes the firewall's counters; the overlay has written its last figures
	if err := a.network.expel(ctx, r); err != nil {
		return err
	}
	a.runs.mu.Lock()
	r.overlay, r.peers = nil, nil
	a.runs.mu.Unlock()
	return nil
}

// wipe makes sure that nothing of the renter's is left on the disk, and that this epoch never runs here again. Only
// then does it record that the run is gone. Another lease may have the run's GPUs meanwhile: see freeGPUs.
func (a *Agent) wipe(ctx context.Context, r *run, v view) error {
	if err := a.metering.end(r, v); err != nil {
		return err
	}
	if err := a.storage.dropVolumes(ctx, r, v); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the lease's volumes cannot be taken away")
	}
	if err := a.shared.drop(r, v); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the lease's shared folders cannot be taken away")
	}
	rec := v.rec
	rec.Gone, rec.Down = true, true
	status := statusOf(r.ref, view{rec: rec, boot: v.boot}, agentapi.Progress{})
	if err := a.disk.bury(status); err != nil {
		return fmt.Errorf("tombstone: %w", err)
	}
	if err := a.disk.wipe(r.ref); err != nil {
		return fmt.Errorf("wipe: %w", err)
	}
	if err := a.runs.change(r, func(rec *record) { rec.Gone, rec.Down = true, true }); err != nil {
		return err
	}
	a.runs.setStatus(r, func(agentapi.LeaseStatus) agentapi.LeaseStatus { return status })
	return nil
}

func (a *Agent) forget(r *run) error {
	if err := a.disk.remove(r.ref); err != nil {
		return err
	}
	a.runs.mu.Lock()
	defer a.runs.mu.Unlock()
	l := a.runs.leases[r.ref.Lease]
	l.runs = slices.DeleteFunc(l.runs, func(x *run) bool { return x == r })
	poke(a.syncNow)
	return nil
}

// killOverdrawn ends a run's command at once: memory is short now. The run then ends as its command's own doing.
func (a *Agent) killOverdrawn(ctx context.Context, r *run) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return a.cfg.Engine.Kill(ctx, r.ref, container.Work)
}

// freeGPUs makes sure that nothing of an ended run is left but what its uploads need: no memory of its GPUs is in use,
// they compute, and its own scratch is removed. From then on the server may give the GPUs to another lease, so nothing
// of this run touches them again.
func (a *Agent) freeGPUs(ctx context.Context, r *run, v view) error {
	if gpus := v.spec().GPUs; !a.cfg.Simulated && len(gpus) > 0 && v.rec.ImageID != "" {
		ctx, cancel := context.WithTimeout(ctx, a.cfg.CleanIn)
		defer cancel()
		if err := a.cfg.GPUs.Leases.WaitClean(ctx, gpus...); err != nil {
			return fault.Wrap(err, fault.Unavailable, "memory of the lease's GPUs is still in use")
		}
	}
	if gpus := v.spec().GPUs; a.cfg.Engine.Checks() && len(gpus) > 0 && v.rec.WorkID != "" && !v.superseded {
		_ = a.checks.check(ctx, gpus) // a later epoch of the lease checks them itself
	}
	a.rdma.leave(ctx, r, v)
	if err := a.storage.dropScratch(r, v); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the lease's scratch cannot be taken away")
	}
	return a.runs.change(r, func(rec *record) { rec.GPUsFree = true })
}
