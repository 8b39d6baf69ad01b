package agent

import (
	"context"

	"github.com/musterhq/muster/agent/container"
	"github.com/musterhq/muster/agent/cores"
	"github.com/musterhq/muster/internal/agentapi"
)

// giveCores is the set of processors of a run: as its record says, else chosen now among what no other run has, and
// written down before anything uses it. Whoever starts the run again, another agent too, gives it the same.
func (a *Agent) giveCores(r *run, spec agentapi.LeaseSpec) (cores.Set, error) {
	var set cores.Set
	err := a.change(r, func(rec *record) {
		if rec.Cores == nil {
			near, _ := a.cfg.Cores.Pick(spec.GPUs, spec.CPUs, spec.RAMMB, a.coresTaken(r))
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

// holdCores notes in a run's record which processors its workload has indeed: Docker may have refused those that were
// chosen, and given it any. What it has not is free for others.
func holdCores(rec *record, c container.Container) {
	if c.State == container.Absent {
		return // somebody removed it just now: it is made again
	}
	if rec.Cores == nil || rec.Cores.CPUs != c.CPUs || rec.Cores.Mems != c.Mems {
		rec.Cores = &cores.Set{CPUs: c.CPUs, Mems: c.Mems}
	}
}

// freeCores gives back what was chosen for a run whose workload Docker refused to make. One that is there all the same,
// never started or ended, keeps its processors until it is removed, and so does one that cannot be looked for. An agent
// that dies before it has given them back has its successor make the workload with them, or take the run down.
func (a *Agent) freeCores(ctx context.Context, r *run) {
	c, err := a.cfg.Engine.Inspect(ctx, r.ref, container.Work)
	if err == nil && c.State == container.Absent {
		err = a.change(r, func(rec *record) { rec.Cores = nil })
	}
	if err != nil && ctx.Err() == nil {
		a.log.Warn("the processors of a workload that was refused are still held for it", "lease", r.ref, "err", err)
	}
}

// coresTaken are the sets of all other runs whose containers may be there. Callers hold a.mu.
func (a *Agent) coresTaken(but *run) []cores.Set {
	var out []cores.Set
	for _, l := range a.leases {
		for _, r := range l.runs {
			if r != but && r.rec.Cores != nil && !r.rec.Down && !r.rec.Gone {
				out = append(out, *r.rec.Cores)
			}
		}
	}
	return out
}
