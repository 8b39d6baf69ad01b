package agent

import (
	"context"
	"errors"
	"io/fs"

	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
)

// makeScratch makes a run's scratch. Its location is written to the disk first, so that the wipe finds it whatever
// happens.
func (s *storage) makeScratch(ctx context.Context, r *run, v view) error {
	if s.scratch == nil {
		return container.Refusal{Reason: agentapi.ReasonNotOffered, Detail: "this host offers no scratch any more"}
	}
	path := s.scratch.Path(r.ref)
	if old := v.rec.Scratch; old != path {
		if old != "" { // the operator has configured another folder
			if err := scratch.Release(old); err != nil {
				return err
			}
		}
		if err := s.runs.change(r, func(rec *record) { rec.Scratch = path }); err != nil {
			return err
		}
	}
	return s.scratch.Make(ctx, r.ref, v.spec().ScratchGB)
}

// scratched reports whether a run has the scratch that it needs. It does not check a workload that runs: it was started
// with its scratch.
func scratched(v view) (bool, error) {
	if v.spec().ScratchGB == 0 || v.rec.Outcome != nil || v.work.State == container.Running {
		return true, nil
	}
	if v.rec.Scratch == "" {
		return false, nil
	}
	return scratch.Ready(v.rec.Scratch)
}

// lostScratch returns why a running workload can no longer write to its scratch, or "" while it can. It does not touch
// the disk: a disk that hangs must not block the observation of anything else. If the list of mounts cannot be read,
// the scratch is not taken for lost.
func lostScratch(v view) string {
	if v.spec().ScratchGB == 0 || v.rec.Scratch == "" || !v.rec.Started || v.rec.Outcome != nil {
		return ""
	}
	why, err := scratch.Lost(v.rec.Scratch)
	if err != nil {
		return ""
	}
	return why
}

// scratchOf returns the folder that the workload sees as its scratch, or "" without one.
func scratchOf(v view) string {
	if v.spec().ScratchGB == 0 || v.rec.Scratch == "" {
		return ""
	}
	return scratch.Data(v.rec.Scratch)
}

// dropScratch removes a run's scratch, at the location in its record and, in case the record is lost, at the default
// location.
func (s *storage) dropScratch(r *run, v view) error {
	var errs []error
	if v.rec.Scratch != "" {
		errs = append(errs, scratch.Release(v.rec.Scratch))
	}
	if s.scratch != nil && s.scratch.Path(r.ref) != v.rec.Scratch {
		errs = append(errs, scratch.Release(s.scratch.Path(r.ref)))
	}
	return errors.Join(errs...)
}

// sweepScratch removes scratches that belong to no known run, because their lease folders were removed by hand. It is
// called once and runs concurrently with everything else, so that a disk that hangs delays nothing. A run that begins
// meanwhile is known before its scratch is made.
func (s *storage) sweepScratch(context.Context) {
	if s.scratch == nil {
		return
	}
	err := s.scratch.Sweep(s.runs.here)
	if err != nil {
		s.log.Warn("scratch of former leases is left", "err", err)
	}
}

// purgeScratch removes every scratch and volume that a record in stateDir names or that is in store.
func purgeScratch(stateDir string, store *scratch.Store) error {
	d := disk{dir: stateDir}
	refs, err := d.refs()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	errs := []error{err}
	for _, ref := range refs {
		rec, err := d.load(ref)
		if err != nil {
			continue
		}
		if rec.Scratch != "" {
			errs = append(errs, scratch.Release(rec.Scratch))
		}
		for _, path := range rec.Volumes {
			errs = append(errs, scratch.Release(path))
		}
	}
	if store != nil {
		errs = append(errs, store.Sweep(func(agentapi.LeaseRef) bool { return false }))
	}
	return errors.Join(errs...)
}
