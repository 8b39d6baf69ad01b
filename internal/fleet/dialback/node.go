package dialback

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// Node is a shell connection to one running node, for any number of processes in its container and ports in its
// network. It is safe for concurrent use. The caller must close it.
type Node struct {
	session *yamux.Session
	stream  net.Conn
}

// OpenNode requests a shell connection from the node's host. Its faults are those of Open.
func (x *Dialer) OpenNode(ctx context.Context, host id.Host, ref agentapi.LeaseRef) (*Node, error) {
	s, err := x.Open(ctx, host, agentapi.Dial{LeaseRef: ref, Purpose: agentapi.PurposeShell})
	if err != nil {
		return nil, err
	}
	return newNode(s)
}

func newNode(stream net.Conn) (*Node, error) {
	session, err := yamux.Client(stream, mux())
	if err != nil {
		stream.Close()
		return nil, err
	}
	return &Node{session, stream}, nil
}

// mux returns the yamux configuration. The agent uses the same. Timeouts are long, because an overloaded machine is
// still alive.
func mux() *yamux.Config {
	c := yamux.DefaultConfig()
	c.KeepAliveInterval, c.ConnectionWriteTimeout = 20*time.Second, time.Minute
	c.StreamOpenTimeout, c.StreamCloseTimeout = time.Minute, time.Hour
	c.MaxStreamWindowSize = 1 << 20
	c.LogOutput = io.Discard
	return c
}

// Close closes the connection and everything that uses it.
func (n *Node) Close() error {
	return errors.Join(n.session.Close(), n.stream.Close())
}

// Broken returns a channel that is closed when the connection no longer works.
func (n *Node) Broken() <-chan struct{} { return n.session.CloseChan() }

// call opens a stream and makes a request on it. If the agent refuses, the fault contains the agent's message.
func (n *Node) call(ctx context.Context, r agentapi.ShellRequest) (net.Conn, error) {
	lost := func(err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fault.Wrap(err, fault.Unavailable, "The connection to the node was lost.")
	}
	c, err := n.session.Open()
	if err != nil {
		return nil, lost(err)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	reply, err := n.request(c, r)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	switch {
	case err != nil:
		c.Close()
		return nil, lost(err)
	case reply.Error != "":
		c.Close()
		kind := fault.Unavailable
		if reply.Refused {
			kind = fault.NotFound
		}
		return nil, fault.New(kind, "%s", text.OneLine(text.Clip(reply.Error, maxErrorText)))
	}
	return c, nil
}

func (n *Node) request(c net.Conn, r agentapi.ShellRequest) (reply agentapi.ShellReply, err error) {
	var b bytes.Buffer
	if err = json.NewEncoder(&b).Encode(r); err != nil {
		return reply, err
	}
	if b.Len() > agentapi.MaxShellLine {
		return reply, fault.New(fault.TooLarge, "The command is too long.")
	}
	if _, err = c.Write(b.Bytes()); err != nil {
		return reply, err
	}
	line, err := agentapi.ReadShellLine(c)
	if err == nil {
		err = json.Unmarshal(line, &reply)
	}
	return reply, err
}

// Port connects to an address as seen from the node, host:port with an IP address as the host. It returns
// fault.NotFound if nothing listens on the port.
func (n *Node) Port(ctx context.Context, address string) (*PortConn, error) {
	c, err := n.call(ctx, agentapi.ShellRequest{Op: agentapi.ShellPort, Address: address})
	if err != nil {
		return nil, err
	}
	return &PortConn{Conn: c}, nil
}

// PortConn is a connection to a port. Closing a yamux stream ends only the sending direction, so PortConn distinguishes
// CloseWrite from Close; after Close, received data is discarded.
type PortConn struct {
	net.Conn
	once sync.Once
}

// CloseWrite ends the sending direction. The node may continue to send.
func (p *PortConn) CloseWrite() error { return p.Conn.Close() }

// Close ends both directions.
func (p *PortConn) Close() (err error) {
	p.once.Do(func() {
		err = p.Conn.Close()
		go func() { _, _ = io.Copy(io.Discard, p.Conn) }() // lets a host that is still sending see the end
	})
	return err
}

// Process is a process in a renter's container. Run reads its output.
type Process struct {
	conn net.Conn

	mu      sync.Mutex
	credit  int // bytes of input that may still be sent
	room    *sync.Cond
	over    bool
	writing sync.Mutex
}

// Exec starts a process. The caller must close it, which ends the process.
func (n *Node) Exec(ctx context.Context, r agentapi.ExecRequest) (*Process, error) {
	c, err := n.call(ctx, agentapi.ShellRequest{Op: agentapi.ShellExec, Exec: &r})
	if err != nil {
		return nil, err
	}
	p := &Process{conn: c, credit: agentapi.MaxUntaken}
	p.room = sync.NewCond(&p.mu)
	return p, nil
}

// Run copies the process's output until the process ends, and returns its exit code: 128 + n if signal n ended it. Run
// returns an error if the connection to the process was lost.
func (p *Process) Run(stdout, stderr io.Writer) (code int, err error) {
	defer p.Close()
	var buf []byte
	for {
		kind, payload, err := agentapi.ReadFrame(p.conn, buf)
		if err != nil {
			return 0, fault.Wrap(err, fault.Unavailable, "The connection to the node was lost.")
		}
		buf = payload
		switch kind {
		case agentapi.FrameStdout:
			_, err = stdout.Write(payload)
		case agentapi.FrameStderr:
			_, err = stderr.Write(payload)
		case agentapi.FrameTaken:
			err = p.taken(payload)
		case agentapi.FrameExit:
			if len(payload) == 4 {
				return int(binary.BigEndian.Uint32(payload)), nil
			}
			err = errors.New("a damaged exit code")
		case agentapi.FrameError:
			err = fault.New(fault.Unavailable, "%s", text.OneLine(text.Clip(string(payload), maxErrorText)))
		}
		if err != nil {
			return 0, err
		}
	}
}

func (p *Process) taken(payload []byte) error {
	if len(payload) != 4 {
		return errors.New("a damaged frame")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.credit = min(p.credit+int(binary.BigEndian.Uint32(payload)), agentapi.MaxUntaken)
	p.room.Broadcast()
	return nil
}

// Write sends input. It waits while the process does not read its input. Run must be running, because it receives the
// acknowledgements.
func (p *Process) Write(b []byte) (int, error) {
	p.writing.Lock()
	defer p.writing.Unlock()
	sent := 0
	for sent < len(b) {
		n, err := p.grant(min(len(b)-sent, agentapi.MaxFrame))
		if err != nil {
			return sent, err
		}
		if err := agentapi.WriteFrame(p.conn, agentapi.FrameStdin, b[sent:sent+n]); err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// grant waits until input may be sent, and returns how many of want bytes.
func (p *Process) grant(want int) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.credit == 0 && !p.over {
		p.room.Wait()
	}
	if p.over {
		return 0, net.ErrClosed
	}
	n := min(want, p.credit)
	p.credit -= n
	return n, nil
}

// CloseWrite ends the input.
func (p *Process) CloseWrite() error { return agentapi.WriteFrame(p.conn, agentapi.FrameEOF, nil) }

// Resize sends the new size of the terminal.
func (p *Process) Resize(cols, rows int) error {
	b := binary.BigEndian.AppendUint16(nil, uint16(min(cols, 1<<16-1)))
	return agentapi.WriteFrame(p.conn, agentapi.FrameResize, binary.BigEndian.AppendUint16(b, uint16(min(rows, 1<<16-1))))
}

// Signal sends a signal by its name without the prefix SIG.
func (p *Process) Signal(name string) error {
	return agentapi.WriteFrame(p.conn, agentapi.FrameSignal, []byte(name))
}

// Close ends the process if it is still running.
func (p *Process) Close() error {
	p.mu.Lock()
	p.over = true
	p.room.Broadcast()
	p.mu.Unlock()
	return p.conn.Close()
}
