package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/storage/sharedfs"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// shares is what the agent remembers of shared file systems. Agent.mu guards it.
type shares struct {
	orders []agentapi.SharedErase        // of the last desired state
	uses   map[string]agentapi.SharedUse // to report, by folder
	acked  map[string]agentapi.SharedUse // as last acknowledged
}

// measuredFolder is what was measured of a folder last.
type measuredFolder struct {
	bytes   int64
	known   bool
	next    time.Time // when it is measured again
	written map[agentapi.LeaseRef]int
}

const (
	// sharedEvery is the time between looks at shared folders. A folder that takes long to measure is measured again
	// after sharedRest times as long.
	sharedEvery = 30 * time.Second
	sharedRest  = 9
	// sharedHeld is how many looks in a row a program may keep a file open for writing over the quota.
	sharedHeld = 3
	// sharedPatience is how long a start waits for a shared file system.
	sharedPatience = 2 * time.Minute
)

// sharedError is the error of a shared folder that cannot be mounted.
type sharedError struct{ error }

// share returns a declared file system, nil if the host has none of that name.
func (a *Agent) share(name string) *sharedfs.Share {
	for _, s := range a.cfg.Shared {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// sharedDir is where the folders of leases are mounted on the host. It is not in the state folder, which is removed
// recursively.
func sharedDir(host id.Host) string {
	return filepath.Join("/run/muster-agent", container.Host8(host), "shared")
}

func (a *Agent) sharedPoint(ref agentapi.LeaseRef, folder string) string {
	return filepath.Join(sharedDir(a.cfg.Host), fmt.Sprintf("%s-e%d-%s", ref.Lease, ref.Epoch, folder))
}

// bindShared mounts the shared folders of a run on the host, and returns what its container mounts.
func (a *Agent) bindShared(ctx context.Context, ref agentapi.LeaseRef, v view) (out []container.Bind, err error) {
	for _, m := range v.spec().Shared {
		s := a.share(m.Name)
		if s == nil {
			return nil, container.Refusal{Reason: agentapi.ReasonNotOffered,
				Detail: "the host has no shared file system " + m.Name + " any more"}
		}
		point := a.sharedPoint(ref, m.Folder)
		if err := s.Bind(ctx, m, point); err != nil {
			return nil, sharedError{err}
		}
		// The mount itself is without writing, devices and setuid programs, as it must be, and the container's has what it
		// has. Docker's own ReadOnly would take nodev and nosuid away.
		out = append(out, container.Bind{Source: point, Target: m.Path})
	}
	return out, nil
}

// dropShared takes the mounts of a run's shared folders away. What is in them stays.
func (a *Agent) dropShared(r *run, v view) error {
	var errs []error
	for _, m := range v.spec().Shared {
		errs = append(errs, sharedfs.Unbind(a.sharedPoint(r.ref, m.Folder)))
	}
	return errors.Join(errs...)
}

// sweepShared takes the mounts of shared folders away that belong to no known run. It is called once.
func (a *Agent) sweepShared(context.Context) {
	entries, err := os.ReadDir(sharedDir(a.cfg.Host))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	errs := []error{err}
	for _, e := range entries {
		if point := filepath.Join(sharedDir(a.cfg.Host), e.Name()); !a.needsShared(point) {
			errs = append(errs, sharedfs.Unbind(point))
		}
	}
	if err := errors.Join(errs...); err != nil {
		a.log.Warn("shared folders of former leases are left mounted", "err", err)
	}
}

// needsShared reports whether a run that is not gone has its shared folder mounted at a path of the host.
func (a *Agent) needsShared(point string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.leases {
		for _, r := range l.runs {
			needs := func(m agentapi.SharedMount) bool { return a.sharedPoint(r.ref, m.Folder) == point }
			if !r.rec.Gone && slices.ContainsFunc(r.rec.Spec.Shared, needs) {
				return true
			}
		}
	}
	return false
}

// purgeShared takes all mounts of shared folders away.
func purgeShared(host id.Host) error {
	entries, err := os.ReadDir(sharedDir(host))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		errs = append(errs, sharedfs.Unbind(filepath.Join(sharedDir(host), e.Name())))
	}
	return errors.Join(errs...)
}

// sharedLoop measures the shared file systems, each on a separate goroutine: while the servers of one are away, the
// quotas of the others are measured.
func (a *Agent) sharedLoop(ctx context.Context) {
	var wg sync.WaitGroup
	for _, s := range a.cfg.Shared {
		wg.Go(func() { a.lookAfter(ctx, s) })
	}
	wg.Wait()
}

// lookAfter measures the folders of the host's runs on a shared file system, closes those that are over their quotas,
// and deletes those of which the platform asks it.
func (a *Agent) lookAfter(ctx context.Context, s *sharedfs.Share) {
	every := a.cfg.SharedEvery
	if every == 0 {
		every = sharedEvery
	}
	measured := map[string]*measuredFolder{} // by folder
	for pause(ctx, every, a.shareNow[s.Name]) {
		for _, f := range a.foldersInUse(s.Name) {
			if measured[f.Folder] == nil {
				measured[f.Folder] = &measuredFolder{written: map[agentapi.LeaseRef]int{}}
			}
			a.lookAtFolder(ctx, s, f, measured[f.Folder])
		}
		a.mu.Lock()
		orders := slices.Clone(a.shares.orders)
		a.mu.Unlock()
		for _, o := range orders {
			if o.Name == s.Name {
				a.eraseFolder(ctx, s, o)
			}
		}
	}
}

// usedFolder is a shared folder with the runs that have it.
type usedFolder struct {
	agentapi.SharedMount
	writers []*run
}

// foldersInUse returns the folders of a shared file system that runs have whose workload runs.
func (a *Agent) foldersInUse(name string) (out []usedFolder) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.leases {
		for _, r := range l.runs {
			if r.rec.Gone || r.rec.WorkID == "" || r.rec.Outcome != nil {
				continue
			}
			for _, m := range r.rec.Spec.Shared {
				if m.Name != name {
					continue
				}
				i := slices.IndexFunc(out, func(f usedFolder) bool { return f.Folder == m.Folder })
				if i < 0 {
					i, out = len(out), append(out, usedFolder{SharedMount: m})
				}
				if m.Mode == agentapi.MountRW {
					out[i].writers = append(out[i].writers, r)
				}
			}
		}
	}
	return out
}

// lookAtFolder measures a folder when it is time, and closes it if it is over its quota and has grown since the last
// look. A folder that is over its quota and does not grow stays open: its renter has to delete something.
func (a *Agent) lookAtFolder(ctx context.Context, s *sharedfs.Share, f usedFolder, last *measuredFolder) {
	began := a.cfg.Now()
	if began.Before(last.next) {
		return
	}
	bytes, err := s.Used(ctx, f.Marker, f.Folder)
	if ctx.Err() != nil {
		return
	}
	last.next = a.cfg.Now().Add(sharedRest * a.cfg.Now().Sub(began))
	use := agentapi.SharedUse{Folder: f.Folder, Bytes: bytes}
	deep := sharedfs.Unmeasured(err)
	if err != nil {
		use.Problem = clipped("it cannot be measured: " + err.Error())
		if !deep {
			use.Bytes = last.bytes
			a.noteShared(use)
			return
		}
	}
	grown := last.known && bytes > last.bytes
	last.bytes, last.known = bytes, true
	if deep || bytes > f.QuotaBytes && (grown || len(last.written) > 0) {
		use.Closed = true
		for _, r := range f.writers {
			if why := a.closeFolder(ctx, s, r, f, last); why != "" {
				use.Closed, use.Problem = false, clipped(why)
			}
		}
	} else {
		clear(last.written)
		use.Closed = bytes > f.QuotaBytes && a.allClosed(f)
	}
	a.noteShared(use)
}

// allClosed reports whether no run can write to a folder any more. The kernel knows, also after a restart of the agent.
func (a *Agent) allClosed(f usedFolder) bool {
	for _, r := range f.writers {
		if pid := a.workloadOf(r); pid == 0 || !sharedfs.Closed(pid, f.Folder) {
			return false
		}
	}
	return len(f.writers) > 0
}

// workloadOf returns the process of a run's workload, or 0.
func (a *Agent) workloadOf(r *run) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return r.workPID
}

// closeFolder makes a folder read-only in a run's container, and returns why it is not. A run that prevents it for
// long is ended.
func (a *Agent) closeFolder(ctx context.Context, s *sharedfs.Share, r *run, f usedFolder,
	last *measuredFolder) (why string) {
	pid := a.workloadOf(r)
	if pid == 0 {
		return ""
	}
	written, err := s.Close(ctx, pid, f.Folder)
	switch {
	case err == nil:
		delete(last.written, r.ref)
		return ""
	case !written:
		a.log.Warn("a shared folder over its quota cannot be closed", "lease", r.ref, "shared", f.Name, "err", err)
	}
	if last.written[r.ref]++; last.written[r.ref] >= sharedHeld {
		a.endOver(r, fmt.Sprintf("the folder on the shared file system %s at %s is over its quota of %d bytes, and could "+
			"not be made read-only: %v", f.Name, f.Path, f.QuotaBytes, err))
	}
	return "it is over its quota and cannot be made read-only yet: " + err.Error()
}

// endOver ends a run's command because it holds more than it may.
func (a *Agent) endOver(r *run, why string) {
	a.log.Warn("a lease is over a quota and is ended", "lease", r.ref, "detail", why)
	if err := a.change(r, func(rec *record) { rec.Overdrawn = clipped(why) }); err != nil {
		a.log.Error("cannot write a lease's record", "lease", r.ref, "err", err)
		return
	}
	a.mu.Lock()
	a.kick(r.ref)
	a.mu.Unlock()
}

// eraseFolder deletes a folder, unless the platform has acknowledged that it is deleted, or a run still has it.
func (a *Agent) eraseFolder(ctx context.Context, s *sharedfs.Share, o agentapi.SharedErase) {
	a.mu.Lock()
	done := a.shares.acked[o.Folder].Erased || a.shares.uses[o.Folder].Erased
	for _, l := range a.leases {
		for _, r := range l.runs {
			done = done || !r.rec.Gone &&
				slices.ContainsFunc(r.rec.Spec.Shared, func(m agentapi.SharedMount) bool { return m.Folder == o.Folder })
		}
	}
	a.mu.Unlock()
	if done {
		return
	}
	use := agentapi.SharedUse{Folder: o.Folder}
	if err := s.Erase(ctx, o.Marker, o.Folder); err != nil {
		if ctx.Err() != nil {
			return
		}
		a.log.Warn("a shared folder is not deleted yet", "shared", o.Name, "folder", o.Folder, "err", err)
		use.Problem = clipped("it is not deleted yet: " + err.Error())
	} else {
		use.Erased = true
		a.log.Info("a shared folder is deleted", "shared", o.Name, "folder", o.Folder)
	}
	a.noteShared(use)
}

// useStep is the difference in bytes that is worth a report.
const useStep = 1 << 20

// noteShared stores what is to be reported of a folder, if it is news.
func (a *Agent) noteShared(u agentapi.SharedUse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old, known := a.shares.acked[u.Folder]
	if same := old; known {
		same.Bytes = u.Bytes
		if same == u && max(u.Bytes-old.Bytes, old.Bytes-u.Bytes) < useStep {
			delete(a.shares.uses, u.Folder)
			return
		}
	}
	if a.shares.uses == nil {
		a.shares.uses, a.shares.acked = map[string]agentapi.SharedUse{}, map[string]agentapi.SharedUse{}
	}
	a.shares.uses[u.Folder] = u
	poke(a.syncNow)
}

// sharedUses returns what to report. Callers hold a.mu.
func (a *Agent) sharedUses() []agentapi.SharedUse {
	names := slices.Sorted(maps.Keys(a.shares.uses))
	out := make([]agentapi.SharedUse, 0, len(names))
	for _, n := range names[:min(len(names), agentapi.MaxSharedUse)] {
		out = append(out, a.shares.uses[n])
	}
	return out
}

// ackShared removes what the server has committed. Callers hold a.mu.
func (a *Agent) ackShared(s agentapi.Sync, ack uint64) {
	if ack == 0 || ack != s.Seq {
		return
	}
	for _, u := range s.Shared {
		if a.shares.uses[u.Folder] == u {
			delete(a.shares.uses, u.Folder)
			a.shares.acked[u.Folder] = u
		}
	}
}
