package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Arguments that the benchmark starts itself with.
const (
	argServer = "fleet-server" // of one server
	argHosts  = "fleet-hosts"  // of hosts
	argThief  = "fleet-thief"  // that steals processor time
)

// Process runs what the benchmark starts itself as: a server, hosts, or a thief. It obeys the calls on its
// standard input until that ends. ok is false if args name none of them.
func Process(args []string) (code int, ok bool) {
	if len(args) != 1 {
		return 0, false
	}
	calls := rpc.NewServer()
	var err error
	switch args[0] {
	case argServer:
		err = calls.RegisterName("Process", &ServerCalls{})
	case argHosts:
		err = calls.RegisterName("Process", &HostCalls{})
	case argThief:
		err = calls.RegisterName("Process", &ThiefCalls{})
	default:
		return 0, false
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, args[0]+":", err)
		return 1, true
	}
	calls.ServeCodec(jsonrpc.NewServerCodec(pipe{os.Stdin, os.Stdout}))
	return 0, true
}

// pipe joins what is read and what is written.
type pipe struct {
	io.ReadCloser
	io.WriteCloser
}

// Close closes both.
func (p pipe) Close() error { return errors.Join(p.WriteCloser.Close(), p.ReadCloser.Close()) }

// None is no arguments, or no result.
type None struct{}

// Usage is what a process has used.
type Usage struct {
	CPU    time.Duration // since it started
	Memory float64       // live bytes of heap and stacks, if they were asked for
}

// usage returns what this process has used. With memory it collects garbage first, several times: each collection at
// most halves an oversized stack.
func usage(memory bool) (u Usage) {
	if memory {
		for range 4 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		u.Memory = float64(m.HeapInuse + m.StackInuse)
	}
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	u.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	return u
}

// process is a process that the benchmark started.
type process struct {
	command *exec.Cmd
	calls   *rpc.Client
}

// spawn starts this program as one of the processes. It ends with ctx, or when kill is called.
func spawn(ctx context.Context, arg string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, self, arg)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", arg, err)
	}
	return &process{c, jsonrpc.NewClient(pipe{out, in})}, nil
}

// call makes the process do something, and returns its result.
func call[R any](p *process, what string, arg any) (r R, err error) {
	if err = p.calls.Call("Process."+what, arg, &r); err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return r, err
}

// kill ends the process at once, as a crash does.
func (p *process) kill() {
	_ = p.command.Process.Kill() // it may have ended
	_ = p.command.Wait()
	_ = p.calls.Close()
}
