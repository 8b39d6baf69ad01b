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

// Node is a shell connection to one running node: processes in its container and ports in its network, many at once.
// Safe for concurrent use. Close it.
type Node struct {
	session *yamux.Session
	stream  net.Conn
}

// OpenNode asks the node's host for a shell connection. Faults as of Open.
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

// mux is how both sides speak yamux. Times are generous: a laden machine is not a dead one.
func mux() *yamux.Config {
	c := yamux.DefaultConfig()
	c.KeepAliveInterval, c.ConnectionWriteTimeout = 20*time.Second, time.Minute
	c.StreamOpenTimeout, c.StreamCloseTimeout = time.Minute, time.Hour
	c.MaxStreamWindowSize = 1 << 20
	c.LogOutput = io.Discard
	return c
}

// Close ends everything that is open over the connection.
func (n *Node) Close() error {
	return errors.Join(n.session.Close(), n.stream.Close())
}

// Broken is closed once the connection no longer works.
func (n *Node) Broken() <-chan struct{} { return n.session.CloseChan() }

// call opens a stream and makes a request on it. Its faults say what the agent said.
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

// Port connects to an address as the node sees it, host:port with the host an address. A port on which nothing listens
// is NotFound.
func (n *Node) Port(ctx context.Context, address string) (*PortConn, error) {
	c, err := n.call(ctx, agentapi.ShellRequest{Op: agentapi.ShellPort, Address: address})
	if err != nil {
		return nil, err
	}
	return &PortConn{Conn: c}, nil
}

// PortConn is a connection to a port. It tells yamux's closing, which is of one direction, from ours, after which
// nobody reads either.
type PortConn struct {
	net.Conn
	once sync.Once
}

// CloseWrite ends what is sent; the node may go on sending.
func (p *PortConn) CloseWrite() error { return p.Conn.Close() }

// Close ends both directions.
func (p *PortConn) Close() (err error) {
	p.once.Do(func() {
		err = p.Conn.Close()
		go func() { _, _ = io.Copy(io.Discard, p.Conn) }() // lets a host that still sends see the end
	})
	return err
}

// Process is a process in a renter's container. Read output with Run.
type Process struct {
	conn net.Conn

	mu      sync.Mutex
	credit  int // bytes of input that may still be sent
	room    *sync.Cond
	over    bool
	writing sync.Mutex
}

// Exec starts a process. Close it, which ends it.
func (n *Node) Exec(ctx context.Context, r agentapi.ExecRequest) (*Process, error) {
	c, err := n.call(ctx, agentapi.ShellRequest{Op: agentapi.ShellExec, Exec: &r})
	if err != nil {
		return nil, err
	}
	p := &Process{conn: c, credit: agentapi.MaxUntaken}
	p.room = sync.NewCond(&p.mu)
	return p, nil
}

// Run copies the process's output until it ends, and returns its exit code; 128 + n says that signal n ended it. An
// error says why the process was lost.
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

// Write sends input. It waits while the process does not take what it was sent. Run has to be under way.
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

// grant waits until some of want may be sent.
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

// Resize tells the size of the terminal.
func (p *Process) Resize(cols, rows int) error {
	b := binary.BigEndian.AppendUint16(nil, uint16(min(cols, 1<<16-1)))
	return agentapi.WriteFrame(p.conn, agentapi.FrameResize, binary.BigEndian.AppendUint16(b, uint16(min(rows, 1<<16-1))))
}

// Signal sends a signal by its name without SIG.
func (p *Process) Signal(name string) error {
	return agentapi.WriteFrame(p.conn, agentapi.FrameSignal, []byte(name))
}

// Close ends the process, if it has not ended.
func (p *Process) Close() error {
	p.mu.Lock()
	p.over = true
	p.room.Broadcast()
	p.mu.Unlock()
	return p.conn.Close()
}
