package gpu

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/device"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// errGone is the error of a request whose probe ended before it answered.
var errGone = errors.New("the GPU probe ended before it answered")

// child is one instance of the probe process.
type child struct {
	cmd     *exec.Cmd
	in      *os.File
	events  chan<- wire.Event
	log     *slog.Logger
	ended   chan struct{} // closed when the child's output ends
	reaped  chan struct{} // closed when the process is gone; a process stuck in the driver is never reaped
	started time.Time

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan wire.Message // nil once ended
}

func startChild(cfg Config, events chan<- wire.Event, now time.Time) (*child, error) {
	cmd := exec.Command(cfg.Exe[0], cfg.Exe[1:]...)
	cmd.Env = append(os.Environ(), cfg.Env...)
	if cfg.LibraryPath != "" {
		cmd.Env = append(cmd.Env, LibraryEnv+"="+cfg.LibraryPath)
	}
	// A process group of its own: a Ctrl-C meant for the agent must not end the probe under it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr := &lineLogger{log: cfg.Logger}
	cmd.Stderr = stderr
	cmd.WaitDelay = time.Second
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		theirIn.Close()
		in.Close()
		return nil, err
	}
	cmd.Stdin, cmd.Stdout = theirIn, theirOut
	err = cmd.Start()
	theirIn.Close()
	theirOut.Close()
	if err != nil {
		in.Close()
		out.Close()
		return nil, fmt.Errorf("start the GPU probe: %w", err)
	}
	c := &child{cmd: cmd, in: in, events: events, log: cfg.Logger, ended: make(chan struct{}), reaped: make(chan struct{}),
		started: now, waiting: map[uint64]chan wire.Message{}}
	go c.read(out)
	go func() {
		defer close(c.reaped)
		err := cmd.Wait()
		c.log.Info("GPU probe ended", "pid", cmd.Process.Pid, "status", fmt.Sprint(err))
		c.end()
	}()
	return c, nil
}

// read delivers the child's messages until its output ends.
func (c *child) read(out *os.File) {
	defer c.end()
	defer out.Close()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, wire.MaxLine)
	for lines.Scan() {
		var m wire.Message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			c.log.Error("GPU probe spoke nonsense", "err", err)
			c.kill()
			return
		}
		if m.Event != nil {
			select {
			case c.events <- *m.Event:
			case <-c.ended:
			}
			continue
		}
		c.mu.Lock()
		answer := c.waiting[m.ID]
		delete(c.waiting, m.ID)
		c.mu.Unlock()
		if answer != nil {
			answer <- m // buffered
		}
	}
}

// request sends a request. The channel gets its answer, or is closed if the child ends first. forget must be called
// when the answer is no longer awaited.
func (c *child) request(r wire.Request, patience time.Duration) (answer <-chan wire.Message, forget func(), err error) {
	ch := make(chan wire.Message, 1)
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return nil, nil, errGone
	}
	c.last++
	id := c.last
	c.waiting[id] = ch
	r.ID = id
	line, err := json.Marshal(r)
	if err == nil {
		// Writes happen under the lock, so that lines do not mix. The deadline keeps a child that stopped reading from
		// blocking the agent.
		_ = c.in.SetWriteDeadline(time.Now().Add(patience))
		_, err = c.in.Write(append(line, '\n'))
	}
	c.mu.Unlock()
	forget = func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}
	if err != nil {
		forget()
		c.kill()
		return nil, nil, fmt.Errorf("%w: %w", errGone, err)
	}
	return ch, forget, nil
}

// end fails all pending requests. It may be called more than once.
func (c *child) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		return
	}
	for _, ch := range c.waiting {
		close(ch)
	}
	c.waiting = nil
	close(c.ended)
	c.in.Close()
}

// kill kills the child without waiting: a process stuck in the driver may not die for minutes.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	c.end()
}

// quit ends a child as planned, without waiting for it: it finishes the calls that have begun, and is killed only if it
// does not end then. A process that is killed within a call may leave the driver in a bad state.
func (c *child) quit() {
	c.end()
	go func() {
		select {
		case <-c.reaped:
		case <-time.After(device.Linger):
			_ = c.cmd.Process.Kill()
		}
	}()
}

func (c *child) alive() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// lineLogger writes the child's stderr to the agent's log, with a limit on its size.
type lineLogger struct {
	log  *slog.Logger
	line []byte
}

var _ io.Writer = (*lineLogger)(nil)

func (l *lineLogger) Write(b []byte) (int, error) {
	for _, c := range b {
		if c != '\n' && len(l.line) < 500 {
			l.line = append(l.line, c)
			continue
		}
		if c == '\n' && len(l.line) > 0 {
			l.log.Warn("GPU probe", "says", string(l.line))
			l.line = l.line[:0]
		}
	}
	return len(b), nil
}
