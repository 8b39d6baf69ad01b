// Package bucket mounts renters' buckets for leases. Each mount is a separate process (cmd/muster-mount) outside of
// the lease's containers, which outlives the agent: the next agent adopts it.
//
// What always holds:
//   - Credentials go to a process through a pipe and are in memory only. An agent that was restarted adopts what runs,
//     and starts nothing again until the control plane has sent the credentials again.
//   - What is not uploaded yet lies in the run's cache folder. A process that died is started again with the same
//     folder, and its mount replaces the dead one in the running container.
//   - In a container nothing is unmounted but mounts of this package, whatever the workload does to its paths.
//   - The folder that a bucket is mounted at is never removed recursively: that would delete what is in the bucket.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/scratch"
	"github.com/musterhq/muster/internal/agentapi"
)

// Config is what the mounts of a host need.
type Config struct {
	Dir     string // of all mounts; not below a folder that is removed recursively
	Program string // muster-mount
	// AnyAddress also accepts http, and addresses that are not on the internet.
	AnyAddress bool
	Log        *slog.Logger
	Changed    func() // is called when a State has changed; nil: nothing is
}

// Mounts are the mounts of a host. Safe for concurrent use.
type Mounts struct {
	cfg Config

	mu   sync.Mutex
	keep map[key]*keeper
}

// key names a bucket of a run.
type key struct {
	ref    agentapi.LeaseRef
	bucket string
}

// Wanted is a bucket that should be mounted.
type Wanted struct {
	Ref   agentapi.LeaseRef
	Mount agentapi.BucketMount // with its credentials, if they are known
	Cache string               // a folder of the run's own
	PID   int                  // of the workload's first process; 0: none runs
	// Ended: nothing of the workload runs any more, so nothing more is written.
	Ended bool
}

// State is how a bucket's mount is.
type State struct {
	Ready bool // it is mounted, in the workload's container too if one runs
	// Refused is why it cannot be mounted, by the store's word; Problem is why it is not mounted yet. For people.
	Refused string
	Problem string
	// Files and Bytes wait to be uploaded; Failing is how often the upload that failed most often has failed.
	Files   int
	Bytes   int64
	Failing int
	// Uploaded: after Ended, all that was written is in the store.
	Uploaded bool
	// Starts is how often the process was started by this agent.
	Starts int
}

// New returns the mounts of a host. Nothing is mounted until Want.
func New(cfg Config) *Mounts {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	return &Mounts{cfg: cfg, keep: map[key]*keeper{}}
}

// Usable reports whether this host can mount buckets.
func (m *Mounts) Usable() bool { return Check(m.cfg.Program) == nil }

// Want mounts a bucket and keeps it mounted until Detach. It may be called again with another PID or new credentials;
// one without credentials keeps those that are known.
func (m *Mounts) Want(w Wanted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.keep[key{w.Ref, w.Mount.Bucket}]
	if k == nil {
		k = newKeeper(m.cfg, m.folder(w.Ref, w.Mount.Bucket), w)
		m.keep[key{w.Ref, w.Mount.Bucket}] = k
		go k.run()
		return
	}
	k.want(w)
}

// Known reports whether a bucket of a run is wanted, with its credentials.
func (m *Mounts) Known(ref agentapi.LeaseRef, bucket string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.keep[key{ref, bucket}]
	return k != nil && k.hasCredentials()
}

// State returns how a bucket of a run is mounted.
func (m *Mounts) State(ref agentapi.LeaseRef, bucket string) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.keep[key{ref, bucket}]; k != nil {
		return k.present()
	}
	return State{}
}

// Point returns where a bucket of a run is mounted on the host.
func (m *Mounts) Point(ref agentapi.LeaseRef, bucket string) string {
	return m.folder(ref, bucket).point()
}

const mark = "+" // between a run and a bucket in the name of a folder

func (m *Mounts) folder(ref agentapi.LeaseRef, bucket string) folder {
	return folder(filepath.Join(m.cfg.Dir, fmt.Sprintf("%s-e%d%s%s", ref.Lease, ref.Epoch, mark, bucket)))
}

// Detach ends the mounts of a run. What is not uploaded yet stays in its cache folder.
func (m *Mounts) Detach(ctx context.Context, ref agentapi.LeaseRef) error {
	var ending []*keeper
	m.mu.Lock()
	for k, keeper := range m.keep {
		if k.ref == ref {
			delete(m.keep, k)
			ending = append(ending, keeper)
		}
	}
	m.mu.Unlock()
	for _, k := range ending {
		k.stop()
	}
	return m.clean(ctx, func(r agentapi.LeaseRef) bool { return r == ref })
}

// Interrupt ends the process of each bucket of a run, and the requests of programs that wait for a store that does not
// answer: until then, not even SIGKILL ends them. The processes are started again, and upload what they had to.
func (m *Mounts) Interrupt(ref agentapi.LeaseRef) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.keep {
		if k.ref != ref {
			continue
		}
		if _, pidfd, ok := m.folder(ref, k.bucket).running(); ok {
			_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) // it may have ended
			unix.Close(pidfd)
		}
	}
}

// Close stops to look after the mounts, which stay for the next agent.
func (m *Mounts) Close() {
	m.mu.Lock()
	all := m.keep
	m.keep = map[key]*keeper{}
	m.mu.Unlock()
	for _, k := range all {
		k.stop()
	}
}

// Sweep ends the mounts of runs that are not known.
func (m *Mounts) Sweep(ctx context.Context, known func(agentapi.LeaseRef) bool) error {
	return m.clean(ctx, func(r agentapi.LeaseRef) bool { return !known(r) })
}

func (m *Mounts) clean(ctx context.Context, gone func(agentapi.LeaseRef) bool) error {
	entries, err := os.ReadDir(m.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if ref, ok := refOf(e.Name()); ok && gone(ref) {
			errs = append(errs, folder(filepath.Join(m.cfg.Dir, e.Name())).remove(ctx))
		}
	}
	return errors.Join(errs...)
}

// refOf returns the run of a folder's name.
func refOf(name string) (ref agentapi.LeaseRef, ok bool) {
	run, _, ok := strings.Cut(name, mark)
	i := strings.LastIndex(run, "-e")
	if !ok || i <= 0 {
		return ref, false
	}
	epoch, err := strconv.Atoi(run[i+2:])
	return agentapi.LeaseRef{Lease: run[:i], Epoch: epoch}, err == nil
}

// onHost runs f where Docker sees its mounts.
var onHost = scratch.OnHost
