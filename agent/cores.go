package agent

import (
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
		a.log.Info("a lease gets the processors near its GPUs", "lease", r.ref, "cpus", set.CPUs, "mems", set.Mems, "shared", set.Shared)
	}
	return set, err
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
