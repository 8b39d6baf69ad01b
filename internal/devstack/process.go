package devstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a child that survives when this program is killed, and that the next start finds by its pid file. Pid and
// kernel start time together identify a process, so a reused pid is never mistaken for it.
type process struct {
	name string // name of its files in dir
	dir  string
	cmd  func() *exec.Cmd
}

type pidFile struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // field 22 of /proc/PID/stat
}

// start starts the child unless it already runs. started is false if it was adopted.
func (p process) start() (started bool, err error) {
	if p.pid() != 0 {
		return false, nil
	}
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	defer log.Close()
	cmd := p.cmd()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start %s: %w", p.name, err)
	}
	go cmd.Wait() // only reaps it; /proc shows whether it runs
	b, err := json.Marshal(pidFile{cmd.Process.Pid, startTime(cmd.Process.Pid)})
	if err != nil {
		return true, err
	}
	return true, writeFile(p.path(), b)
}

// pid returns the running child's pid, or 0.
func (p process) pid() int {
	b, err := os.ReadFile(p.path())
	if err != nil {
		return 0
	}
	var f pidFile
	if json.Unmarshal(b, &f) != nil || f.PID == 0 || f.Start == "" || startTime(f.PID) != f.Start {
		return 0
	}
	return f.PID
}

// stop ends the child: SIGTERM, then SIGKILL after grace. It is no error if it does not run.
func (p process) stop(ctx context.Context, grace time.Duration) error {
	pid := p.pid()
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	if waitGone(ctx, p, grace) {
		return nil
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	if !waitGone(ctx, p, 5*time.Second) {
		return fmt.Errorf("%s (pid %d) does not end", p.name, pid)
	}
	return nil
}

func waitGone(ctx context.Context, p process, limit time.Duration) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if p.pid() == 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return p.pid() == 0
		case <-deadline.C:
			return p.pid() == 0
		case <-tick.C:
		}
	}
}

func (p process) path() string { return filepath.Join(p.dir, p.name+".pid") }
func (p process) log() string  { return filepath.Join(p.dir, p.name+".log") }

// startTime returns when the process was started, in clock ticks since boot, as text; "" if it no longer runs (a zombie
// does not).
func startTime(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The command name, in parentheses, may contain spaces and parentheses: count fields after the last one.
	_, rest, ok := strings.Cut(string(b[strings.LastIndexByte(string(b), ')'):]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}
