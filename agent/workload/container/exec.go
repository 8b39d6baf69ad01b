package container

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// execMark is the environment variable that marks processes of shells on the machine; its value is the agent's host.
const execMark = "MUSTER_SHELL"

// Exec is a process in a workload next to the renter's command: a shell, a command, an sftp server. It must be closed.
type Exec struct {
	engine *Engine
	id     string
	work   string // id of the container
	tty    bool
	conn   client.HijackedResponse
	leader leader
}

// Exec starts a process in a running workload, through the injected binary, as the container's user. If the workload
// does not run, the error is a NotFound fault.
func (e *Engine) Exec(ctx context.Context, ref agentapi.LeaseRef, r agentapi.ExecRequest) (*Exec, error) {
	work, err := e.Inspect(ctx, ref, Work)
	if err != nil {
		return nil, err
	}
	if work.State != Running {
		return nil, fault.New(fault.NotFound, "the node's container does not run")
	}
	made, err := e.docker.ExecCreate(ctx, work.ID, client.ExecCreateOptions{
		TTY: r.TTY, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		Env: append(execEnv(r.Env), execMark+"="+e.cfg.Host.String()),
		Cmd: guest.ExecArgs(r),
	})
	if err != nil {
		return nil, unavailable(err, "start a process in %s", ref)
	}
	attached, err := e.docker.ExecAttach(ctx, made.ID, client.ExecAttachOptions{TTY: r.TTY})
	if err != nil {
		return nil, unavailable(err, "start a process in %s", ref)
	}
	return &Exec{engine: e, id: made.ID, work: work.ID, tty: r.TTY, conn: attached.HijackedResponse}, nil
}

// execEnv returns the variables that a renter may set for a process of a shell: not those that select devices, and none
// without a name.
func execEnv(env []string) []string {
	var out []string
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		if ok && name != "" && name != execMark && !agentapi.ChoosesDevices(name) &&
			!strings.ContainsRune(kv, 0) {
			out = append(out, kv)
		}
	}
	return out
}

// Write writes to the process's standard input; CloseWrite closes it.
func (x *Exec) Write(b []byte) (int, error) { return x.conn.Conn.Write(b) }
func (x *Exec) CloseWrite() error           { return x.conn.CloseWrite() }

// Output calls emit with the process's output in order, at most max bytes at a time, until the process ends or emit
// fails.
func (x *Exec) Output(max int, emit func(stderr bool, b []byte) error) error {
	buf := make([]byte, max)
	var head [8]byte
	left, stderr := 0, false
	for {
		if !x.tty && left == 0 {
			if _, err := io.ReadFull(x.conn.Reader, head[:]); err != nil {
				return notEOF(err)
			}
			stderr = head[0] == 2
			left = int(head[4])<<24 | int(head[5])<<16 | int(head[6])<<8 | int(head[7])
			continue
		}
		part := buf
		if !x.tty {
			part = buf[:min(left, len(buf))]
		}
		n, err := x.conn.Reader.Read(part)
		left -= n
		if n > 0 {
			if err := emit(stderr, part[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return notEOF(err)
		}
	}
}

func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Resize sets the size of the process's terminal.
func (x *Exec) Resize(ctx context.Context, cols, rows int) error {
	_, err := x.engine.docker.ExecResize(ctx, x.id, client.ExecResizeOptions{Width: uint(cols), Height: uint(rows)})
	return unavailable(err, "resize a terminal")
}

// execLook is the interval between looks at a process that should start or end at any moment.
const execLook = 20 * time.Millisecond

// Started waits until the process runs and records its pid on the host: from then on Hangup finds it even without the
// daemon. It is no error if the process has ended already.
func (x *Exec) Started(ctx context.Context) error {
	for {
		res, err := x.engine.docker.ExecInspect(ctx, x.id, client.ExecInspectOptions{})
		if err != nil {
			return unavailable(err, "look at a process")
		}
		if res.PID > 0 {
			x.leader = findLeader(res.PID, x.work)
			return nil
		}
		if !res.Running && res.ExitCode != 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(execLook):
		}
	}
}

// Wait returns the exit code once the process has ended; 128 + n means that signal n ended it.
func (x *Exec) Wait(ctx context.Context) (int, error) {
	for {
		res, err := x.engine.docker.ExecInspect(ctx, x.id, client.ExecInspectOptions{})
		if err != nil {
			return 0, unavailable(err, "look at a process")
		}
		if !res.Running {
			return res.ExitCode, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(execLook):
		}
	}
}

// Signal sends a signal to the process and to what runs in its process group.
func (x *Exec) Signal(name string) error { return x.leader.signal(name) }

// Hangup ends the process and what it started, as the loss of a terminal does: it sends HUP, then KILL to what is left,
// except to processes that deliberately ignore HUP (nohup). It returns when they are gone or ctx ends.
func (x *Exec) Hangup(ctx context.Context) { x.leader.hangup(ctx) }

// Close closes the connection. The process goes on: see Hangup.
func (x *Exec) Close() { x.conn.Close() }

// LeftExecs finds processes of shells that an earlier agent of this host left behind when it was killed. Call it before
// the first Exec; the returned function ends them.
func (e *Engine) LeftExecs() (end func(ctx context.Context)) {
	left := leftBehind(execMark + "=" + e.cfg.Host.String())
	return func(ctx context.Context) {
		for _, l := range left {
			e.cfg.Log.Info("ending a shell that an earlier agent left", "pid", l.pid)
			l.hangup(ctx)
		}
	}
}

// leftBehind returns the session leaders on this machine that have the variable in their environment.
func leftBehind(variable string) []leader {
	var out []leader
	for _, pid := range pids() {
		st, ok := readStat(pid)
		if !ok || st.session != pid {
			continue
		}
		env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err == nil && strings.Contains("\x00"+string(env), "\x00"+variable+"\x00") {
			out = append(out, leader{pid: pid, start: st.start})
		}
	}
	return out
}
