// Package fusemount keeps file systems mounted for leases. Each mount is a separate process (cmd/muster-mount) outside
// of the lease's containers, which outlives the agent: the next agent adopts it. Packages bucket and lazy say what is
// mounted.
//
// What always holds:
//   - What a process needs to know, secrets included, goes to it through a pipe and is in memory only. An agent that
//     was restarted adopts what runs, and starts nothing again until the control plane has sent the secrets again.
//   - A process that died is started again with the same cache folder, and its mount replaces the dead one in the
//     running container.
//   - In a container nothing is unmounted but mounts of this package, whatever the workload does to its paths.
//   - A process has no secrets, and reaches nothing, before Config.Confine has confined it.
//   - The folder that something is mounted at is never removed recursively: that would delete what a bucket has.
package fusemount

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

	"github.com/musterhq/muster/agent/storage/fusemount/wire"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/internal/agentapi"
)

// Config is what the mounts of a host need.
type Config struct {
	Dir     string // of all mounts; not below a folder that is removed recursively
	Program string // muster-mount
	// Env is added to the environment of the processes.
	Env []string
	// Confine limits and counts what a process of a run moves over the host's line. It is called before the process knows
	// what to mount, and for each process of a former agent; without its consent, nothing is mounted. nil: nothing is
	// limited.
	Confine func(ref agentapi.LeaseRef, pid int) error
	Log     *slog.Logger
	Changed func() // is called when a State has changed; nil: nothing is
}

// Mounts are the mounts of a host. Safe for concurrent use.
type Mounts struct {
	cfg Config

	mu   sync.Mutex
	keep map[key]*keeper
}

// key names a mount of a run.
type key struct {
	ref agentapi.LeaseRef
	id  string
}

// Wanted is what should be mounted.
type Wanted struct {
	Ref agentapi.LeaseRef
	ID  string // of the bucket or volume
	// Config is what the process needs to know, without the paths of its folder; nil: it is not known, and what runs is
	// adopted. With another Version, it is mounted again.
	Config  *wire.Config
	Version int
	PID     int // of the workload's first process; 0: none runs
	// Ended: nothing of the workload runs any more, so nothing more is written.
	Ended bool
}

// State is how a mount is.
type State struct {
	Ready bool // it is mounted, in the workload's container too if one runs
	// Refused is why it cannot be mounted, by the store's word; Problem is why it is not mounted yet. For people.
	Refused string
	Problem string
	// ByHost: the problem is this host's own. It cannot start the process, or that does not answer or ends before it has.
	ByHost  bool
	Process wire.State // by the process's word, while it is mounted
	// Idle: after Ended, nothing is left to upload.
	Idle bool
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
	if cfg.Confine == nil {
		cfg.Confine = func(agentapi.LeaseRef, int) error { return nil }
	}
	return &Mounts{cfg: cfg, keep: map[key]*keeper{}}
}

// Usable reports whether this host can mount anything.
func (m *Mounts) Usable() bool { return Check(m.cfg.Program) == nil }

// Want mounts something and keeps it mounted until Detach. It may be called again with another PID or a new Config; one
// without a Config keeps the one that is known.
func (m *Mounts) Want(w Wanted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.keep[key{w.Ref, w.ID}]
	if k == nil {
		k = newKeeper(m.cfg, m.folder(w.Ref, w.ID), w)
		m.keep[key{w.Ref, w.ID}] = k
		go k.run()
		return
	}
	k.want(w)
}

// Known reports whether something is wanted, with its Config.
func (m *Mounts) Known(ref agentapi.LeaseRef, id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.keep[key{ref, id}]
	return k != nil && k.now().Config != nil
}

// State returns how something is mounted.
func (m *Mounts) State(ref agentapi.LeaseRef, id string) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.keep[key{ref, id}]; k != nil {
		return k.present()
	}
	return State{}
}

// Point returns where something is mounted on the host.
func (m *Mounts) Point(ref agentapi.LeaseRef, id string) string { return m.folder(ref, id).point() }

// Log returns the file that a mount's process logs to.
func (m *Mounts) Log(ref agentapi.LeaseRef, id string) string { return m.folder(ref, id).log() }

// Source returns the name of a mount in the kernel's list.
func (m *Mounts) Source(ref agentapi.LeaseRef, id string) string { return sourceOf(ref, id) }

// Requests returns the path of a socket at which an agent may answer a mount's process. Its folder exists then.
func (m *Mounts) Requests(ref agentapi.LeaseRef, id string) (string, error) {
	f := m.folder(ref, id)
	return f.requests(), f.prepare()
}

// PID returns the process of a mount; ok is false if none runs.
func (m *Mounts) PID(ref agentapi.LeaseRef, id string) (pid int, ok bool) {
	n, pidfd, ok := m.folder(ref, id).running()
	if ok {
		unix.Close(pidfd)
	}
	return n.PID, ok
}

const mark = "+" // between a run and what is mounted in the name of a folder

func (m *Mounts) folder(ref agentapi.LeaseRef, id string) folder {
	return folder(filepath.Join(m.cfg.Dir, fmt.Sprintf("%s-e%d%s%s", ref.Lease, ref.Epoch, mark, id)))
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

// Interrupt ends the process of each mount of a run, and the requests of programs that wait for a store that does not
// answer: until then, not even SIGKILL ends them. The processes are started again, and upload what they had to.
func (m *Mounts) Interrupt(ref agentapi.LeaseRef) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.keep {
		if k.ref != ref {
			continue
		}
		if _, pidfd, ok := m.folder(ref, k.id).running(); ok {
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
