package update

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// LaunchedEnv is set for an agent that a launcher has started: the agent may hand over to another version.
const LaunchedEnv = "MUSTER_AGENT_LAUNCHED"

// Launcher starts the agent: it executes the current version in its place, or starts a version on trial as a child that
// it watches. It is a program of the version that has proven itself, so nothing of the version on trial decides about
// the trial.
type Launcher struct {
	Tree  Tree
	State string   // the agent's state directory
	Args  []string // arguments of the agent: run --state …
	Log   *slog.Logger

	Limit time.Duration // time limit of one attempt; 0 = 10 min
	Poll  time.Duration // interval of checks whether it has proven itself; 0 = 0.5 s
	Grace time.Duration // time between SIGTERM and SIGKILL; 0 = 30 s

	// become replaces this process; in tests it returns.
	become func(program string, args, env []string) error
}

// Run returns only with an error, or nil if ctx ends during a trial. Call it from the main goroutine, which it locks to
// its thread: the child ends with the thread that started it.
func (l *Launcher) Run(ctx context.Context) error {
	l.defaults()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := storeIn(l.State)
	for {
		m, err := s.load()
		if err != nil { // unreadable: start the current version, which can be updated again
			l.Log.Error("the record of updates cannot be read: a new one is started", "err", err)
			m = memory{}
		}
		current, err := l.Tree.Current()
		if err != nil {
			return err
		}
		proven, err := s.proven(m.Trial)
		if err != nil {
			l.Log.Error("the proof of an update cannot be read", "err", err)
		}
		do, why := next(m, current, m.Trial != nil && l.Tree.installed(m.Trial.Version), proven)
		switch do {
		case moveRun:
			if err := l.Tree.prune(current, m.Previous); err != nil {
				l.Log.Warn("versions that are not needed could not be removed", "err", err)
			}
			return l.becomeAgent(current)
		case movePromote:
			l.Log.Info("the agent's new version has proven itself", "version", m.Trial.Version, "before", current)
			err = l.Tree.promote(m.Trial.Version)
		case moveClose:
			m.Previous = m.Trial.From
			err = l.close(s, m, agentapi.UpdateDone, "")
		case moveGiveUp:
			l.Log.Error("the agent's new version is given up: the one before goes on", "version", m.Trial.Version, "why", why)
			err = l.close(s, m, agentapi.UpdateRolledBack, why)
		case moveForget:
			m.Trial = nil
			err = s.save(m)
		case moveTry:
			var ended bool
			if ended, err = l.try(ctx, s, m); ended {
				return err
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", do, err)
		}
	}
}

func (l *Launcher) defaults() {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&l.Limit, 10*time.Minute)
	set(&l.Poll, 500*time.Millisecond)
	set(&l.Grace, 30*time.Second)
	if l.become == nil {
		l.become = syscall.Exec
	}
}

// close records the end of a trial.
func (l *Launcher) close(s store, m memory, state agentapi.UpdateState, detail string) error {
	m.Last = agentapi.UpdateStatus{State: state, Version: m.Trial.Version, Try: m.Trial.Try, Detail: clip(detail, 500)}
	m.Trial, m.At = nil, time.Now().UTC()
	return s.save(m)
}

func (l *Launcher) env() []string { return append(os.Environ(), LaunchedEnv+"=1") }

func (l *Launcher) becomeAgent(version string) error {
	program := l.Tree.Program(version)
	if err := l.become(program, append([]string{program}, l.Args...), l.env()); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	return nil
}

// try starts the version on trial once, and watches it until it has proven itself, ends, or runs out of time. ended
// reports that ctx ended: the child was stopped in order, and the attempt does not count.
func (l *Launcher) try(ctx context.Context, s store, m memory) (ended bool, err error) {
	if err := l.awaitFree(ctx); err != nil {
		return ctx.Err() != nil, err
	}
	t := m.Trial
	t.Attempts++
	t.Trouble = "it was killed, or the machine was" // unless a more specific reason is recorded
	if err := s.save(m); err != nil {
		return false, err
	}
	l.Log.Info("the agent's new version is on trial", "version", t.Version, "attempt", t.Attempts)
	var cmd *exec.Cmd
	err = whileBusy(func() error {
		cmd = exec.Command(l.Tree.Program(t.Version), l.Args...)
		cmd.Env, cmd.Stdout, cmd.Stderr = l.env(), os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // two agents must not run
		return cmd.Start()
	})
	if err != nil {
		t.Trouble = clip(err.Error(), 300)
		return false, s.save(m)
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	limit, poll := time.NewTimer(l.Limit), time.NewTicker(l.Poll)
	defer limit.Stop()
	defer poll.Stop()
	for {
		select {
		case err := <-gone:
			t.Trouble = "it ended by itself"
			if err != nil {
				t.Trouble = clip(err.Error(), 300)
			}
			if ok, _ := s.proven(t); ok {
				return false, nil
			}
			l.Log.Warn("the agent's new version ended before it had proven itself", "version", t.Version, "how", t.Trouble)
			err = s.save(m)
			pause(ctx, time.Second<<min(t.Attempts, 4))
			return false, err
		case <-poll.C:
			if ok, _ := s.proven(t); ok {
				l.end(cmd, gone)
				return false, nil
			}
		case <-limit.C:
			l.end(cmd, gone)
			t.TimedOut = true
			t.Trouble = fmt.Sprintf("it did not prove itself within %s", l.Limit)
			if why := s.lacking(t); why != "" {
				t.Trouble += ": " + why
			}
			return false, s.save(m)
		case <-ctx.Done():
			l.end(cmd, gone)
			t.Attempts--
			return true, s.save(m)
		}
	}
}

// end stops the child in order, and kills it if that takes too long. Renters' workloads continue.
func (l *Launcher) end(cmd *exec.Cmd, gone <-chan error) {
	_ = cmd.Process.Signal(syscall.SIGTERM) // the child may have ended
	select {
	case <-gone:
	case <-time.After(l.Grace):
		_ = cmd.Process.Kill()
		<-gone
	}
}

// awaitFree waits until no agent holds the state directory: an agent whose launcher was killed may take a moment to
// end.
func (l *Launcher) awaitFree(ctx context.Context) error {
	f, err := os.OpenFile(filepath.Join(l.State, LockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() // closing releases the lock
	for deadline := time.Now().Add(l.Grace); ; pause(ctx, 100*time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil || !errors.Is(err, syscall.EWOULDBLOCK):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("another agent runs on the state directory %s", l.State)
		}
	}
}

// LockFile is the file in the state directory that a running agent locks.
const LockFile = "agent.lock"

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
