// Package shell serves shell connections on a host: processes in a renter's running container, and connections to ports
// inside its network namespace.
//
// Invariants: a connection reaches the (lease, epoch) that it was dialled for and nothing else on the host; a process
// of a shell ends with its stream, however the stream ends; a process that does not read its input, or a client that
// does not read its output, slows down only itself.
package shell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/musterhq/muster/agent/slots"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// MaxConnections is how many shell connections are served at once, and MaxPerLease how many of one lease. MaxStreams is
// how many processes and ports the connections of one lease may have open together. A stream holds at most 1 MiB of
// unread data of a sender.
const (
	MaxConnections = 128
	MaxPerLease    = 16
	MaxStreams     = 256
)

// refusedPerServed is how many connections can be refused with words at the same time for each that can be served: many
// programs open all their connections at once. Beyond that they are closed.
const refusedPerServed = 4

// Node is a running node as shells need it. Engine's implements it.
type Node interface {
	// Start runs a process in the renter's container.
	Start(ctx context.Context, ref agentapi.LeaseRef, r agentapi.ExecRequest) (Process, error)
	// Namespace opens the node's network namespace.
	Namespace(ctx context.Context, ref agentapi.LeaseRef) (*os.File, error)
}

// Process is a running process, such as *container.Exec.
type Process interface {
	io.Writer
	CloseWrite() error
	Output(max int, emit func(stderr bool, b []byte) error) error
	Resize(ctx context.Context, cols, rows int) error
	Signal(name string) error
	Started(ctx context.Context) error
	Wait(ctx context.Context) (int, error)
	Hangup(ctx context.Context)
	Close()
}

// Engine returns the Node of a container engine.
type Engine struct{ *container.Engine }

func (e Engine) Start(ctx context.Context, ref agentapi.LeaseRef, r agentapi.ExecRequest) (Process, error) {
	x, err := e.Exec(ctx, ref, r)
	if err != nil {
		return nil, err // avoids a nil *Exec in an interface
	}
	return x, nil
}

// Namespace opens the guest's namespace, which every container of the node shares.
func (e Engine) Namespace(ctx context.Context, ref agentapi.LeaseRef) (*os.File, error) {
	c, err := e.Inspect(ctx, ref, container.Guest)
	if err != nil {
		return nil, err
	}
	if c.State != container.Running {
		return nil, fault.New(fault.NotFound, "the node does not run")
	}
	return os.Open(c.NetNS())
}

// Server serves shell connections.
type Server struct {
	node    Node
	log     *slog.Logger
	slots   *slots.Slots // connections
	streams *slots.Slots
	refused *slots.Slots // connections and streams that are refused with words
}

// New returns a Server.
func New(node Node, log *slog.Logger) *Server {
	return &Server{
		node:    node,
		log:     log,
		slots:   slots.New(MaxConnections, MaxPerLease),
		streams: slots.New(MaxConnections*MaxStreams, MaxStreams),
		refused: slots.New(refusedPerServed*MaxConnections, refusedPerServed*MaxPerLease),
	}
}

// Serve serves one connection until it breaks or ctx ends. When it returns, everything that it started is gone.
func (s *Server) Serve(ctx context.Context, ref agentapi.LeaseRef, conn net.Conn) error {
	release, ok := s.slots.Take(ref.Lease)
	if !ok {
		full := fault.New(fault.RateLimited, "this node has %d shell connections open, the most it can have, or its host "+
			"has %d: close one, or share one connection (ControlMaster of ssh)", MaxPerLease, MaxConnections)
		s.refuse(ctx, ref, conn, full)
		return full
	}
	defer release()
	session, err := yamux.Server(conn, Mux())
	if err != nil {
		return err
	}
	defer session.Close()
	defer context.AfterFunc(ctx, func() { session.Close() })()
	var streams sync.WaitGroup
	defer streams.Wait()
	for {
		stream, err := session.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, io.EOF) || session.IsClosed() {
				return nil
			}
			return err
		}
		release, ok := s.streams.Take(ref.Lease)
		if !ok {
			release, ok := s.refused.Take(ref.Lease)
			if !ok {
				stream.Close()
				continue
			}
			streams.Go(func() {
				defer release()
				refuseStream(stream, fault.New(fault.RateLimited, "the shell connections of this node have %d processes and "+
					"ports open, the most they can have: close some", MaxStreams))
			})
			continue
		}
		streams.Go(func() {
			defer release()
			s.serve(ctx, ref, stream)
		})
	}
}

// refuse answers the requests of a connection with why, until it is closed or requestWithin has passed.
func (s *Server) refuse(ctx context.Context, ref agentapi.LeaseRef, conn net.Conn, why error) {
	release, ok := s.refused.Take(ref.Lease)
	if !ok {
		return
	}
	defer release()
	session, err := yamux.Server(conn, Mux())
	if err != nil {
		return
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	defer context.AfterFunc(ctx, func() { session.Close() })()
	for {
		stream, err := session.Accept()
		if err != nil {
			return
		}
		refuseStream(stream, why)
	}
}

// refuseStream reads a request and answers it with why.
func refuseStream(stream net.Conn, why error) {
	defer stream.Close()
	_ = stream.SetDeadline(time.Now().Add(requestWithin))
	if _, err := agentapi.ReadShellLine(stream); err == nil {
		_ = answer(stream, why)
	}
}

// Mux is the configuration of yamux on both sides. Timeouts are generous: an overloaded machine is not a dead one.
func Mux() *yamux.Config {
	c := yamux.DefaultConfig()
	c.KeepAliveInterval, c.ConnectionWriteTimeout = 20*time.Second, time.Minute
	c.StreamOpenTimeout, c.StreamCloseTimeout = time.Minute, time.Hour
	c.MaxStreamWindowSize = 1 << 20
	c.LogOutput = io.Discard
	return c
}

// requestWithin is how long a stream may take to send its request.
const requestWithin = 30 * time.Second

func (s *Server) serve(ctx context.Context, ref agentapi.LeaseRef, stream net.Conn) {
	defer stream.Close()
	_ = stream.SetReadDeadline(time.Now().Add(requestWithin))
	line, err := agentapi.ReadShellLine(stream)
	if err != nil {
		return
	}
	_ = stream.SetReadDeadline(time.Time{})
	var r agentapi.ShellRequest
	if err := json.Unmarshal(line, &r); err != nil {
		_ = answer(stream, fault.New(fault.Invalid, "not a request"))
		return
	}
	switch {
	case r.Op == agentapi.ShellExec && r.Exec != nil:
		err = s.exec(ctx, ref, *r.Exec, stream)
	case r.Op == agentapi.ShellPort:
		err = s.port(ctx, ref, r.Address, stream)
	default:
		_ = answer(stream, fault.New(fault.Invalid, "this agent does not know %q", r.Op))
	}
	if err != nil && ctx.Err() == nil {
		s.log.Info("a shell's stream ended", "lease", ref, "op", r.Op, "err", err)
	}
}

// answer sends the reply to a request; a nil err means success.
func answer(stream io.Writer, err error) error {
	var r agentapi.ShellReply
	if err != nil {
		r.Error = "the host is in trouble"
		if f := fault.From(err); f != nil {
			r.Error, r.Refused = f.Message, f.Kind == fault.NotFound
		}
	}
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(r); err != nil {
		return err
	}
	_, werr := stream.Write(b.Bytes())
	return errors.Join(err, werr)
}
