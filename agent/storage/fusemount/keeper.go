package fusemount

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/fusemount/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

const (
	lookEvery  = time.Second           // at a mount that is well
	startEvery = 20 * time.Millisecond // at one that is starting
	lookEnding = 200 * time.Millisecond
	maxPause   = 10 * time.Second // between starts of a process that ends at once
	// settled is for how long nothing may be left to upload until all counts as uploaded: the kernel reports the last
	// closes of a container that has ended shortly after its end.
	settled = time.Second
)

// reached is called at each step, by tests that kill the process there.
var reached = func(string) {}

// keeper keeps one mount.
type keeper struct {
	cfg    Config
	folder folder
	kick   chan struct{}
	over   chan struct{} // closed by stop
	done   chan struct{} // closed when run has ended

	mu     sync.Mutex
	wanted Wanted
	state  State

	// The rest belongs to run.
	proc      *process
	pause     time.Duration // before the next start
	startAt   time.Time
	idleSince time.Time
}

// process is a running muster-mount.
type process struct {
	note     note
	pidfd    int
	gone     chan struct{}
	begun    time.Time
	answered bool   // it has reported its state
	device   string // of its mount; "" = not mounted yet
}

func newKeeper(cfg Config, f folder, w Wanted) *keeper {
	return &keeper{cfg: cfg, folder: f, wanted: w, kick: make(chan struct{}, 1), over: make(chan struct{}),
		done: make(chan struct{})}
}

func (k *keeper) want(w Wanted) {
	k.mu.Lock()
	defer k.mu.Unlock()
	learnt := w.Config != nil && k.wanted.Config == nil
	if w.Config == nil {
		w.Config, w.Version = k.wanted.Config, k.wanted.Version
	}
	changed := w.PID != k.wanted.PID || w.Ended != k.wanted.Ended || w.Version != k.wanted.Version || learnt
	k.wanted = w
	if changed {
		select {
		case k.kick <- struct{}{}:
		default:
		}
	}
}

func (k *keeper) present() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

func (k *keeper) stop() {
	close(k.over)
	<-k.done
}

// run looks at the mount again and again. It ends no process: the next agent adopts it, or Detach ends it.
func (k *keeper) run() {
	defer close(k.done)
	for {
		wait := k.look()
		var gone chan struct{}
		if k.proc != nil {
			gone = k.proc.gone
		}
		select {
		case <-time.After(wait):
		case <-k.kick:
		case <-gone:
		case <-k.over:
			return
		}
	}
}

// look does what is next, and returns how long to wait until the next look.
func (k *keeper) look() time.Duration {
	w := k.now()
	if k.proc == nil {
		k.adopt()
	}
	if k.proc != nil && closed(k.proc.gone) {
		k.lost()
	}
	if p := k.proc; p != nil && w.Config != nil && p.note.Version != w.Version {
		k.cfg.Log.Info("something is mounted again with new credentials", "lease", w.Ref, "mount", w.ID)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := kill(ctx, p.pidfd)
		cancel()
		if err != nil {
			k.set(func(s *State) { s.Problem, s.ByHost = "its former process does not end", true })
			return lookEvery
		}
		<-p.gone
		k.lost()
		k.pause, k.startAt = 0, time.Time{}
	}
	if k.proc == nil {
		return k.begin(w)
	}
	return k.check(w)
}

// now returns what is wanted.
func (k *keeper) now() Wanted {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wanted
}

// lost notes that the process has ended. One that was mounted is started again at once.
func (k *keeper) lost() {
	if k.proc.device != "" {
		k.pause = 0
	}
	k.startAt = time.Now().Add(k.pause)
	k.pause = min(max(2*k.pause, 100*time.Millisecond), maxPause)
	unix.Close(k.proc.pidfd)
	byHost := !k.proc.answered // one that answered may have ended because of what the store sent
	k.proc = nil
	k.set(func(s *State) { *s = State{Problem: "it is being mounted again", ByHost: byHost, Starts: s.Starts} })
}

// set changes the state, and reports it if something has changed that anything waits for.
func (k *keeper) set(f func(*State)) {
	k.mu.Lock()
	before := k.state
	f(&k.state)
	after := k.state
	k.mu.Unlock()
	if before.Ready != after.Ready || before.Refused != after.Refused || before.Idle != after.Idle {
		k.cfg.Changed()
	}
}

// adopt looks for a process that an agent before this one has started.
func (k *keeper) adopt() {
	n, pidfd, ok := k.folder.running()
	if !ok {
		return
	}
	if err := k.cfg.Confine(k.now().Ref, n.PID); err != nil {
		k.cfg.Log.Error("a mount's process cannot be confined: it is ended", "lease", k.now().Ref, "err", err)
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) // it may have ended
	}
	p := &process{note: n, pidfd: pidfd, gone: make(chan struct{}), begun: time.Now()}
	own, err := unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 0) // lost closes the other one
	if err != nil {
		unix.Close(pidfd)
		return
	}
	go func() {
		defer unix.Close(own)
		for !ended(own, time.Minute) {
		}
		close(p.gone)
	}()
	k.proc = p
}

// begin starts the process if it may be started now.
func (k *keeper) begin(w Wanted) time.Duration {
	if w.Config == nil {
		k.set(func(s *State) { s.Problem, s.ByHost = "its secrets are awaited from the control plane", false })
		return lookEvery
	}
	if wait := time.Until(k.startAt); wait > 0 {
		return wait
	}
	err := k.folder.unmount()
	if err == nil {
		err = k.start(w)
	}
	if err != nil {
		k.cfg.Log.Error("a mount's process cannot be started", "lease", w.Ref, "mount", w.ID, "err", err)
		k.set(func(s *State) { s.Problem, s.ByHost = "the host cannot start its mount", true })
		k.pause = min(max(2*k.pause, 100*time.Millisecond), maxPause)
		return k.pause
	}
	k.set(func(s *State) { s.Starts++ })
	return startEvery
}

// sourceOf is the name of a mount in the kernel's list.
func sourceOf(ref agentapi.LeaseRef, id string) string {
	return fmt.Sprintf("muster:%s-e%d:%s", ref.Lease, ref.Epoch, id)
}

// start runs muster-mount in a new session, without the agent's environment, where Docker sees its mounts.
func (k *keeper) start(w Wanted) error {
	if err := k.folder.prepare(); err != nil {
		return err
	}
	c := *w.Config
	c.Source, c.Point, c.Socket = sourceOf(w.Ref, w.ID), k.folder.point(), k.folder.socket()
	config, err := json.Marshal(c)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(k.folder.log(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(k.cfg.Program)
	cmd.Dir, cmd.Env = "/", append([]string{"PATH=/usr/bin:/bin"}, k.cfg.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	if err := onHost(cmd.Start); err != nil {
		return err
	}
	reached("spawned")
	p := &process{note: note{PID: cmd.Process.Pid, Boot: bootID(), Version: w.Version},
		gone: make(chan struct{}), begun: time.Now()}
	p.pidfd, err = unix.PidfdOpen(cmd.Process.Pid, 0)
	if err == nil {
		p.note.Start, err = startOf(cmd.Process.Pid)
	}
	if err == nil {
		err = k.folder.save(p.note)
	}
	reached("noted")
	if err == nil {
		err = k.cfg.Confine(w.Ref, cmd.Process.Pid)
	}
	if err == nil { // if the agent is killed before, the process ends: it would be unknown to the next agent
		_, err = stdin.Write(config)
	}
	reached("configured")
	if err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	go func() {
		_ = cmd.Wait()
		close(p.gone)
	}()
	k.proc = p
	reached("started")
	return nil
}

// check reads how the process is, and puts its mount into the container.
func (k *keeper) check(w Wanted) time.Duration {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	st, err := k.folder.state(ctx)
	if err != nil {
		if time.Since(k.proc.begun) > 10*time.Second {
			k.set(func(s *State) { s.Problem, s.ByHost = "its process does not answer", true })
		}
		return startEvery
	}
	k.proc.answered = true
	reached("answered")
	if st.Stage != wire.Ready {
		k.set(func(s *State) {
			s.Ready, s.Problem, s.Refused, s.ByHost = false, st.Problem, "", false
			if st.Stage == wire.Refused {
				s.Refused, s.Problem = st.Problem, ""
			}
		})
		return startEvery
	}
	if err := k.attach(w); err != nil {
		k.cfg.Log.Warn("a mount cannot be put into a running container", "lease", w.Ref, "mount", w.ID, "err", err)
		k.set(func(s *State) { s.Ready, s.Problem, s.ByHost = false, "its mount cannot be put into the node", true })
		return lookEvery
	}
	busy := st.Open || st.Files > 0 || st.Unknown
	if busy || !w.Ended {
		k.idleSince = time.Time{}
	} else if k.idleSince.IsZero() {
		k.idleSince = time.Now()
	}
	idle := !k.idleSince.IsZero() && time.Since(k.idleSince) >= settled
	k.set(func(s *State) {
		s.Ready, s.Refused, s.Problem, s.ByHost = true, "", "", false
		s.Process, s.Idle = st, idle
	})
	if w.Ended && !idle {
		return lookEnding
	}
	return lookEvery
}

// attach replaces a former mount in the workload's container by the present one.
func (k *keeper) attach(w Wanted) error {
	if k.proc.device == "" {
		err := onHost(func() error {
			own, err := ownMounts("thread-self", sourceOf(w.Ref, w.ID))
			if err == nil && len(own) == 0 {
				err = errors.New("the host has no such mount")
			}
			if err == nil {
				k.proc.device = own[len(own)-1].device
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if w.PID == 0 {
		return nil
	}
	r := replacement{pid: w.PID, source: sourceOf(w.Ref, w.ID), point: k.folder.point(),
		device: k.proc.device, folder: k.folder}
	if err := r.do(); !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
