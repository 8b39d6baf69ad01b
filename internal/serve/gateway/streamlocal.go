package gateway

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/kballard/go-shellquote"
	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/text"
)

// streamlocal serves direct-streamlocal@openssh.com channels: a connection to a Unix socket of the visitor's rank (ssh
// -L 8080:/run/x.sock). The injected binary makes it, as the container's user and with that user's rights.
func (v *visit) streamlocal(c ssh.NewChannel) {
	var m struct {
		Path, Reserved string
		Zero           uint32
	}
	if ssh.Unmarshal(c.ExtraData(), &m) != nil || m.Path == "" || strings.ContainsRune(m.Path, 0) {
		_ = c.Reject(ssh.ConnectionFailed, "not a path of a socket")
		return
	}
	s, err := v.dialSocket(m.Path)
	if err != nil {
		_ = c.Reject(ssh.ConnectionFailed, v.message(err))
		return
	}
	defer s.close()
	ch, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	go func() {
		ssh.DiscardRequests(requests) // until the visitor closes the channel
		s.close()
	}()
	go func() {
		if _, err := io.Copy(s.process, ch); err == nil {
			_ = s.process.CloseWrite()
		}
	}()
	s.out.release(ch)
	<-s.ended
}

// socket is a connection to a Unix socket of a node, by way of a process there.
type socket struct {
	process *dialback.Process
	out     *socketOutput
	ended   chan error
}

// close ends the process. It may be called more than once.
func (s *socket) close() {
	s.process.Close()
	s.out.end()
}

func (v *visit) dialSocket(path string) (*socket, error) {
	if err := v.recordForward("unix:" + path); err != nil {
		return nil, err
	}
	node, err := v.node(v.Rank)
	if err != nil {
		return nil, err
	}
	p, err := node.Exec(v.ctx, agentapi.ExecRequest{Kind: agentapi.ExecCommand,
		Command: agentapi.GuestBinary + " socket " + shellquote.Join(path)})
	if err != nil {
		return nil, err
	}
	s := &socket{p, newSocketOutput(), make(chan error, 1)}
	var errs firstBytes
	go func() {
		_, err := p.Run(s.out, &errs)
		if err == nil && !s.out.connected {
			err = fault.New(fault.Unavailable, "%s", errs.line())
		}
		s.ended <- err
	}()
	limit := time.NewTimer(openLimit)
	defer limit.Stop()
	select {
	case <-s.out.ready:
		return s, nil
	case err := <-s.ended:
		s.close()
		if err == nil { // it was connected, and ended before we saw it
			err = fault.New(fault.Unavailable, "the socket was closed at once")
		}
		return nil, err
	case <-v.ctx.Done():
		s.close()
		return nil, v.ctx.Err()
	case <-limit.C:
		s.close()
		return nil, fault.New(fault.Unavailable, "the node does not connect to the socket")
	}
}

// socketOutput passes output on once the process has reported that it is connected, and a reader is there.
type socketOutput struct {
	ready     chan struct{} // closed when it is connected
	to        chan io.Writer
	over      chan struct{} // closed when nothing is to be passed on any more
	once      sync.Once
	head      []byte
	connected bool
	w         io.Writer
}

func newSocketOutput() *socketOutput {
	return &socketOutput{ready: make(chan struct{}), to: make(chan io.Writer, 1),
		over: make(chan struct{})}
}

// release lets the output pass to w.
func (o *socketOutput) release(w io.Writer) { o.to <- w }

func (o *socketOutput) end() { o.once.Do(func() { close(o.over) }) }

func (o *socketOutput) Write(b []byte) (int, error) {
	n := len(b)
	if !o.connected {
		o.head = append(o.head, b...)
		if len(o.head) < len(agentapi.SocketConnected) {
			return n, nil
		}
		if !bytes.HasPrefix(o.head, []byte(agentapi.SocketConnected)) {
			return 0, fault.New(fault.Unavailable, "%s", tooOld)
		}
		b, o.connected = o.head[len(agentapi.SocketConnected):], true
		close(o.ready)
	}
	if len(b) == 0 {
		return n, nil
	}
	if o.w == nil {
		select {
		case o.w = <-o.to:
		case <-o.over:
			return 0, io.ErrClosedPipe
		}
	}
	_, err := o.w.Write(b)
	return n, err
}

// firstBytes keeps the beginning of what is written to it.
type firstBytes struct{ b []byte }

func (f *firstBytes) Write(b []byte) (int, error) {
	f.b = append(f.b, b[:min(len(b), 500-len(f.b))]...)
	return len(b), nil
}

// line returns what the node said of a socket that it did not connect to, or that nothing was said.
func (f *firstBytes) line() string {
	first, _, _ := strings.Cut(text.OneLine(text.Clip(strings.TrimSpace(string(f.b)), 500)), "usage:")
	if first = strings.TrimSpace(first); first != "" {
		return first
	}
	return tooOld
}

// tooOld is the answer of a node that was started before its host's agent could forward sockets.
const tooOld = "this node cannot forward sockets: it was started by an older agent"
