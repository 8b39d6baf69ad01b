package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// sharedFolders are the folders of leases on the shared file systems that the operator declares.
type sharedFolders struct {
	host   id.Host
	shares []*sharedfs.Share
	every  time.Duration // between looks at folders
	now    func() time.Time
	log    *slog.Logger
	runs   *runs
	due    map[string]chan struct{} // by shared file system: its folders are to be looked at

	mu     sync.Mutex                    // guards what follows
	orders []agentapi.SharedErase        // of the last desired state
	uses   map[string]agentapi.SharedUse // to report, by folder
	acked  map[string]agentapi.SharedUse // as last acknowledged
}

func newSharedFolders(cfg Config, rs *runs) *sharedFolders {
	s := &sharedFolders{
		host: cfg.Host, shares: cfg.Shared, every: cmp.Or(cfg.SharedEvery, sharedEvery), now: cfg.Now, log: cfg.Log,
		runs: rs, due: map[string]chan struct{}{}, uses: map[string]agentapi.SharedUse{},
		acked: map[string]agentapi.SharedUse{},
	}
	for _, share := range cfg.Shared {
		s.due[share.Name] = make(chan struct{}, 1)
	}
	return s
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
func (s *sharedFolders) share(name string) *sharedfs.Share {
	for _, x := range s.shares {
		if x.Name == name {
			return x
		}
	}
	return nil
}

// sharedDir is where the folders of leases are mounted on the host. It is not in the state folder, which is removed
// recursively.
func sharedDir(host id.Host) string {
	return filepath.Join("/run/muster-agent", container.Host8(host), "shared")
}

func (s *sharedFolders) point(ref agentapi.LeaseRef, folder string) string {
	return filepath.Join(sharedDir(s.host), fmt.Sprintf("%s-e%d-%s", ref.Lease, ref.Epoch, folder))
}

// bind mounts the shared folders of a run on the host, and returns what its container mounts.
func (s *sharedFolders) bind(ctx context.Context, ref agentapi.LeaseRef, v view) (out []container.Bind, err error) {
	for _, m := range v.spec().Shared {
		share := s.share(m.Name)
		if share == nil {
			return nil, container.Refusal{Reason: agentapi.ReasonNotOffered,
				Detail: "the host has no shared file system " + m.Name + " any more"}
		}
		point := s.point(ref, m.Folder)
		if err := share.Bind(ctx, m, point); err != nil {
			return nil, sharedError{err}
		}
		// The mount itself is without writing, devices and setuid programs, as it must be, and the container's has what it
		// has. Docker's own ReadOnly would take nodev and nosuid away.
		out = append(out, container.Bind{Source: point, Target: m.Path})
	}
	return out, nil
}

// drop takes the mounts of a run's shared folders away. What is in them stays.
func (s *sharedFolders) drop(r *run, v view) error {
	var errs []error
	for _, m := range v.spec().Shared {
		errs = append(errs, sharedfs.Unbind(s.point(r.ref, m.Folder)))
	}
	return errors.Join(errs...)
}

// sweep takes the mounts of shared folders away that belong to no known run. It is called once.
func (s *sharedFolders) sweep(context.Context) {
	entries, err := os.ReadDir(sharedDir(s.host))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	errs := []error{err}
	for _, e := range entries {
		if point := filepath.Join(sharedDir(s.host), e.Name()); !s.needs(point) {
			errs = append(errs, sharedfs.Unbind(point))
		}
	}
	if err := errors.Join(errs...); err != nil {
		s.log.Warn("shared folders of former leases are left mounted", "err", err)
	}
}

// needs reports whether a run that is not gone has its shared folder mounted at a path of the host.
func (s *sharedFolders) needs(point string) bool {
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	for r := range s.runs.all() {
		needs := func(m agentapi.SharedMount) bool { return s.point(r.ref, m.Folder) == point }
		if !r.rec.Gone && slices.ContainsFunc(r.rec.Spec.Shared, needs) {
			return true
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

// run measures the shared file systems, each on a separate goroutine: while the servers of one are away, the
// quotas of the others are measured.
func (s *sharedFolders) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, share := range s.shares {
		wg.Go(func() { s.lookAfter(ctx, share) })
	}
	wg.Wait()
}

// lookAfter measures the folders of the host's runs on a shared file system, closes those that are over their quotas,
// and deletes those of which the platform asks it.
func (s *sharedFolders) lookAfter(ctx context.Context, share *sharedfs.Share) {
	measured := map[string]*measuredFolder{} // by folder
	for pause(ctx, s.every, s.due[share.Name]) {
		for _, f := range s.inUse(share.Name) {
			if measured[f.Folder] == nil {
				measured[f.Folder] = &measuredFolder{written: map[agentapi.LeaseRef]int{}}
			}
			s.lookAt(ctx, share, f, measured[f.Folder])
		}
		s.mu.Lock()
		orders := slices.Clone(s.orders)
		s.mu.Unlock()
		for _, o := range orders {
			if o.Name == share.Name {
				s.erase(ctx, share, o)
			}
		}
	}
}

// usedFolder is a shared folder with the runs that have it.
type usedFolder struct {
	agentapi.SharedMount
	writers []*run
}

// inUse returns the folders of a shared file system that runs have whose workload runs.
func (s *sharedFolders) inUse(name string) (out []usedFolder) {
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	for r := range s.runs.all() {
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
	return out
}

// lookAt measures a folder when it is time, and closes it if it is over its quota and has grown since the last
// look. A folder that is over its quota and does not grow stays open: its renter has to delete something.
func (s *sharedFolders) lookAt(ctx context.Context, share *sharedfs.Share, f usedFolder, last *measuredFolder) {
	began := s.now()
	if began.Before(last.next) {
		return
	}
	bytes, err := share.Used(ctx, f.Marker, f.Folder)
	if ctx.Err() != nil {
		return
	}
	last.next = s.now().Add(sharedRest * s.now().Sub(began))
	use := agentapi.SharedUse{Folder: f.Folder, Bytes: bytes}
	deep := sharedfs.Unmeasured(err)
	if err != nil {
		use.Problem = clipped("it cannot be measured: " + err.Error())
		if !deep {
			use.Bytes = last.bytes
			s.note(use)
			return
		}
	}
	grown := last.known && bytes > last.bytes
	last.bytes, last.known = bytes, true
	if deep || bytes > f.QuotaBytes && (grown || len(last.written) > 0) {
		use.Closed = true
		for _, r := range f.writers {
			if why := s.close(ctx, share, r, f, last); why != "" {
				use.Closed, use.Problem = false, clipped(why)
			}
		}
	} else {
		clear(last.written)
		use.Closed = bytes > f.QuotaBytes && s.allClosed(f)
	}
	s.note(use)
}

// allClosed reports whether no run can write to a folder any more. The kernel knows, also after a restart of the agent.
func (s *sharedFolders) allClosed(f usedFolder) bool {
	for _, r := range f.writers {
		if pid := s.workload(r); pid == 0 || !sharedfs.Closed(pid, f.Folder) {
			return false
		}
	}
	return len(f.writers) > 0
}

// workload returns the process of a run's workload, or 0.
func (s *sharedFolders) workload(r *run) int {
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	return r.workPID
}

// close makes a folder read-only in a run's container, and returns why it is not. A run that prevents it for
// long is ended.
func (s *sharedFolders) close(ctx context.Context, share *sharedfs.Share, r *run, f usedFolder,
	last *measuredFolder) (why string) {
	pid := s.workload(r)
	if pid == 0 {
		return ""
	}
	written, err := share.Close(ctx, pid, f.Folder)
	switch {
	case err == nil:
		delete(last.written, r.ref)
		return ""
	case !written:
		s.log.Warn("a shared folder over its quota cannot be closed", "lease", r.ref, "shared", f.Name, "err", err)
	}
	if last.written[r.ref]++; last.written[r.ref] >= sharedHeld {
		s.runs.overdraw(r, "a lease is over a quota and is ended", fmt.Sprintf("the folder on the shared file system "+
			"%s at %s is over its quota of %d bytes, and could not be made read-only: %v", f.Name, f.Path, f.QuotaBytes, err))
	}
	return "it is over its quota and cannot be made read-only yet: " + err.Error()
}

// erase deletes a folder, unless the platform has acknowledged that it is deleted, or a run still has it.
func (s *sharedFolders) erase(ctx context.Context, share *sharedfs.Share, o agentapi.SharedErase) {
	s.mu.Lock()
	done := s.acked[o.Folder].Erased || s.uses[o.Folder].Erased
	s.mu.Unlock()
	s.runs.mu.Lock()
	for r := range s.runs.all() {
		done = done || !r.rec.Gone &&
			slices.ContainsFunc(r.rec.Spec.Shared, func(m agentapi.SharedMount) bool { return m.Folder == o.Folder })
	}
	s.runs.mu.Unlock()
	if done {
		return
	}
	use := agentapi.SharedUse{Folder: o.Folder}
	if err := share.Erase(ctx, o.Marker, o.Folder); err != nil {
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("a shared folder is not deleted yet", "shared", o.Name, "folder", o.Folder, "err", err)
		use.Problem = clipped("it is not deleted yet: " + err.Error())
	} else {
		use.Erased = true
		s.log.Info("a shared folder is deleted", "shared", o.Name, "folder", o.Folder)
	}
	s.note(use)
}

// useStep is the difference in bytes that is worth a report.
const useStep = 1 << 20

// note stores what is to be reported of a folder, if it is news.
func (s *sharedFolders) note(u agentapi.SharedUse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.acked[u.Folder]
	if same := old; known {
		same.Bytes = u.Bytes
		if same == u && max(u.Bytes-old.Bytes, old.Bytes-u.Bytes) < useStep {
			delete(s.uses, u.Folder)
			return
		}
	}
	s.uses[u.Folder] = u
	poke(s.runs.report)
}

// toReport returns what to report.
func (s *sharedFolders) toReport() []agentapi.SharedUse {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.uses))
	out := make([]agentapi.SharedUse, 0, len(names))
	for _, n := range names[:min(len(names), agentapi.MaxSharedUse)] {
		out = append(out, s.uses[n])
	}
	return out
}

// acknowledge removes what the server has committed of a report.
func (s *sharedFolders) acknowledge(reported []agentapi.SharedUse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range reported {
		if s.uses[u.Folder] == u {
			delete(s.uses, u.Folder)
			s.acked[u.Folder] = u
		}
	}
}

// order sets which folders the platform wants deleted.
func (s *sharedFolders) order(orders []agentapi.SharedErase) {
	s.mu.Lock()
	s.orders = orders
	s.mu.Unlock()
	for _, o := range orders {
		poke(s.due[o.Name]) // nil, which nothing waits on, if this host does not have it
	}
}
