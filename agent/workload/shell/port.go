package shell

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/musterhq/muster/agent/net/netns"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// dialLimit is how long connecting to a port may take.
const dialLimit = 20 * time.Second

// port connects the stream to an address as seen by the node. It connects in the node's network namespace, so it
// reaches exactly what the renter's own command reaches, firewall included.
func (s *Server) port(ctx context.Context, ref agentapi.LeaseRef, address string, stream net.Conn) error {
	target, err := s.dial(ctx, ref, address)
	if err != nil {
		return answer(stream, err)
	}
	defer target.Close()
	defer context.AfterFunc(ctx, func() { target.Close(); stream.Close() })()
	if err := answer(stream, nil); err != nil {
		return err
	}
	back := make(chan error, 1)
	go func() {
		_, err := io.Copy(stream, target)
		back <- errors.Join(err, stream.Close()) // yamux closes one direction
	}()
	_, err = io.Copy(target, stream)
	err = errors.Join(err, target.CloseWrite())
	if err := errors.Join(err, <-back); err != nil && !hungUp(err) {
		return err
	}
	return nil
}

// hungUp reports that one side closed before the other had sent everything, which is not worth reporting.
func hungUp(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ENOTCONN) ||
		errors.Is(err, net.ErrClosed)
}

func (s *Server) dial(ctx context.Context, ref agentapi.LeaseRef, address string) (*net.TCPConn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%q is not an address and a port", address)
	}
	ns, err := s.node.Namespace(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	var conn net.Conn
	err = netns.Inside(ns, func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
		return err
	})
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fault.New(fault.NotFound, "nothing listens on port %d of the node", to.Port())
	case err != nil:
		return nil, fault.Wrap(err, fault.NotFound, "%s cannot be reached from the node", to)
	}
	return conn.(*net.TCPConn), nil
}
