package shell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/testing/testnet"
)

const patience = time.Minute

// node is a fake node: processes echo their input in capitals, or never read it.
type node struct {
	deaf  bool
	procs chan *process
}

type process struct {
	deaf   bool
	in     *io.PipeWriter
	read   *io.PipeReader
	closed chan struct{}
	once   sync.Once
	hung   chan struct{}
}

func (n *node) Start(_ context.Context, _ agentapi.LeaseRef, r agentapi.ExecRequest) (Process, error) {
	if r.Command == "none" {
		return nil, fault.New(fault.NotFound, "the node's container does not run")
	}
	p := &process{deaf: n.deaf, closed: make(chan struct{}), hung: make(chan struct{})}
	p.read, p.in = io.Pipe()
	n.procs <- p
	return p, nil
}

// Namespace is the test's own.
func (*node) Namespace(context.Context, agentapi.LeaseRef) (*os.File, error) {
	return os.Open("/proc/self/ns/net")
}

func (p *process) Write(b []byte) (int, error) { return p.in.Write(b) }
func (p *process) CloseWrite() error           { return p.in.Close() }
func (p *process) Output(max int, emit func(bool, []byte) error) error {
	if p.deaf {
		<-p.closed
		return nil
	}
	buf := make([]byte, max)
	for {
		n, err := p.read.Read(buf)
		if n > 0 {
			if err := emit(false, bytes.ToUpper(buf[:n])); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}
func (*process) Resize(context.Context, int, int) error { return nil }
func (*process) Signal(string) error                    { return nil }
func (*process) Started(context.Context) error          { return nil }
func (*process) Wait(context.Context) (int, error)      { return 5, nil }
func (p *process) Hangup(context.Context)               { close(p.hung) }
func (p *process) Close() {
	p.once.Do(func() { close(p.closed); p.read.Close(); p.in.Close() })
}

// connect serves a node and is the control plane's side of the connection.
func connect(t *testing.T, n *node) *yamux.Session {
	t.Helper()
	n.procs = make(chan *process, 4)
	ours, theirs := net.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- New(n, slog.New(slog.DiscardHandler)).Serve(t.Context(), agentapi.LeaseRef{Lease: "l", Epoch: 1}, theirs)
	}()
	s, err := yamux.Client(ours, Mux())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if err := within(t, served); err != nil {
			t.Error(err)
		}
	})
	return s
}

func within[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Error("nothing came")
	}
	return v
}

func request(t *testing.T, s *yamux.Session, r agentapi.ShellRequest) (net.Conn, agentapi.ShellReply) {
	t.Helper()
	c, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(r)
	if _, err := c.Write(append(b, '\n')); err != nil {
		t.Fatal(err)
	}
	line, err := agentapi.ReadShellLine(c)
	var reply agentapi.ShellReply
	if err = errors.Join(err, json.Unmarshal(line, &reply)); err != nil {
		t.Fatal(err)
	}
	return c, reply
}

func command(text string) agentapi.ShellRequest {
	return agentapi.ShellRequest{
		Op:   agentapi.ShellExec,
		Exec: &agentapi.ExecRequest{Kind: agentapi.ExecCommand, Command: text},
	}
}

func TestAProcessComesToItsEnd(t *testing.T) {
	t.Parallel()
	n := &node{}
	s := connect(t, n)
	c, reply := request(t, s, command("x"))
	if reply.Error != "" {
		t.Fatal(reply.Error)
	}
	for _, part := range []string{"hel", "lo"} {
		if err := agentapi.WriteFrame(c, agentapi.FrameStdin, []byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if err := agentapi.WriteFrame(c, agentapi.FrameEOF, nil); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	taken := 0
	for {
		kind, payload, err := agentapi.ReadFrame(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		switch kind {
		case agentapi.FrameStdout:
			out.Write(payload)
			continue
		case agentapi.FrameTaken:
			taken += int(payload[3])
			continue
		case agentapi.FrameExit:
		default:
			t.Fatalf("frame %d %q", kind, payload)
		}
		if payload[3] != 5 || out.String() != "HELLO" || taken > 5 {
			t.Errorf("code %d, output %q, %d taken", payload[3], out.String(), taken)
		}
		break
	}
	p := within(t, n.procs)
	within(t, p.closed)
	select {
	case <-p.hung:
		t.Error("a process that ended by itself was hung up: what it left in the background would die")
	default:
	}
}

// A visitor who leaves ends the process, even one that neither reads nor prints.
func TestAProcessEndsWithItsStream(t *testing.T) {
	t.Parallel()
	n := &node{deaf: true}
	s := connect(t, n)
	c, _ := request(t, s, command("x"))
	for range 4 {
		if err := agentapi.WriteFrame(c, agentapi.FrameStdin, make([]byte, agentapi.MaxFrame)); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	within(t, within(t, n.procs).hung)

	// So does a connection that breaks.
	_, _ = request(t, s, command("y"))
	p := within(t, n.procs)
	s.Close()
	within(t, p.hung)
}

// A client that sends more input than was requested is cut off before it fills the host's memory.
func TestInputIsBounded(t *testing.T) {
	t.Parallel()
	n := &node{deaf: true}
	s := connect(t, n)
	c, _ := request(t, s, command("x"))
	for range agentapi.MaxUntaken/agentapi.MaxFrame + 2 {
		if err := agentapi.WriteFrame(c, agentapi.FrameStdin, make([]byte, agentapi.MaxFrame)); err != nil {
			break
		}
	}
	within(t, within(t, n.procs).hung)
}

func TestWhatCannotBeIsSaid(t *testing.T) {
	t.Parallel()
	s := connect(t, &node{})
	free := testnet.Address(t)
	for _, tc := range []struct {
		r       agentapi.ShellRequest
		want    string
		refused bool
	}{
		{command("none"), "the node's container does not run", true},
		{agentapi.ShellRequest{Op: "dance"}, `does not know "dance"`, false},
		{agentapi.ShellRequest{Op: agentapi.ShellPort, Address: "example.org:80"}, "is not an address and a port", false},
		{agentapi.ShellRequest{Op: agentapi.ShellPort, Address: free}, "nothing listens on port", true},
	} {
		if _, reply := request(t, s, tc.r); !strings.Contains(reply.Error, tc.want) || reply.Refused != tc.refused {
			t.Errorf("%+v: %+v, want %q", tc.r, reply, tc.want)
		}
	}
}

func TestAPortIsABothWayStream(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b, _ := io.ReadAll(c) // until the visitor has ended its half
		fmt.Fprintf(c, "got %d", len(b))
	}()
	s := connect(t, &node{})
	c, reply := request(t, s, agentapi.ShellRequest{Op: agentapi.ShellPort, Address: l.Addr().String()})
	if reply.Error != "" {
		t.Fatal(reply.Error)
	}
	if _, err := c.Write(make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	c.Close() // yamux: half of it
	if b, err := io.ReadAll(c); err != nil || string(b) != fmt.Sprintf("got %d", 3<<20) {
		t.Errorf("%q %v", b, err)
	}
}
