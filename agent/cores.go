package agent

import (
	"context"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/cores"
	"github.com/musterhq/muster/internal/agentapi"
)

// giveCores returns the set of processors of a run: the set in its record, or else one chosen now among the processors
// that no other run has. A new choice is written to the disk before anything uses it, so a later start of the run, by
// another agent process too, gets the same set.
func (a *Agent) giveCores(r *run, spec agentapi.LeaseSpec) (cores.Set, error) {
	var set cores.Set
	err := a.runs.change(r, func(rec *record) {
		if rec.Cores == nil {
			near, _ := a.cfg.Cores.Pick(spec.GPUs, spec.CPUs, spec.RAMMB, a.runs.coresTaken(r))
			rec.Cores = &near
		}
		set = *rec.Cores
	})
	if err == nil && set.CPUs != "" {
		a.log.Info("a lease gets the processors near its GPUs", "lease", r.ref, "cpus", set.CPUs, "mems", set.Mems, "shared",
			set.Shared)
	}
	return set, err
}

// holdCores records in a run's record which processors its workload really has: Docker may have refused the chosen set
// and let the workload run on any. Processors that the workload does not have are free for other runs.
func holdCores(rec *record, c container.Container) {
	if c.State == container.Absent {
		return // it was removed just now: the next step makes it again
	}
	if rec.Cores == nil || rec.Cores.CPUs != c.CPUs || rec.Cores.Mems != c.Mems {
		rec.Cores = &cores.Set{CPUs: c.CPUs, Mems: c.Mems}
	}
}

// freeCores frees the set that was chosen for a run whose workload Docker refused to create. A container that exists
// nevertheless, never started or ended, keeps its processors until it is removed, and so does one whose existence
// cannot be checked. If the agent dies before it has freed the set, the next process creates the workload with it, or
// takes the run down.
func (a *Agent) freeCores(ctx context.Context, r *run) {
	c, err := a.cfg.Engine.Inspect(ctx, r.ref, container.Work)
	if err == nil && c.State == container.Absent {
		err = a.runs.change(r, func(rec *record) { rec.Cores = nil })
	}
	if err != nil && ctx.Err() == nil {
		a.log.Warn("the processors of a workload that was refused are still held for it", "lease", r.ref, "err", err)
	}
}
