package line

import (
	"context"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// portion is how many bytes are sent or received at once while there is a limit.
const portion = 64 << 10

// conn is a connection over the line.
type conn struct {
	net.Conn // the same; not TCP's own type, whose ReadFrom would pass by Write
	tcp      *net.TCPConn
	l        *Line
	header   int64 // bytes of a packet's headers
	ctx      context.Context
	cancel   context.CancelFunc
}

// add makes a connection the lease's, if it is over the line.
func (l *Line) add(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	at, ok := tcp.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return c
	}
	addr := at.AddrPort().Addr().Unmap()
	if !l.cfg.OnLine(addr) {
		return c
	}
	x := &conn{Conn: c, tcp: tcp, l: l, header: headerOf(addr)}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[x] = true
	return x
}

// headerOf returns the bytes of the headers of IP and TCP, without options.
func headerOf(addr netip.Addr) int64 {
	if addr.Is4() {
		return 20 + 20
	}
	return 40 + 20
}

func (c *conn) Read(b []byte) (int, error) {
	if c.l.down.Limit() == rate.Inf {
		return c.Conn.Read(b)
	}
	n, err := c.Conn.Read(b[:min(len(b), portion)])
	if n > 0 { // what waits here fills the socket's buffer, so that the store sends less
		if werr := c.l.down.WaitN(c.ctx, n); werr != nil && err == nil {
			err = net.ErrClosed
		}
	}
	return n, err
}

func (c *conn) Write(b []byte) (n int, err error) {
	for n < len(b) {
		part := b[n:]
		if c.l.up.Limit() != rate.Inf {
			part = part[:min(len(part), portion)]
			if c.l.up.WaitN(c.ctx, len(part)) != nil {
				return n, net.ErrClosed
			}
		}
		k, err := c.Conn.Write(part)
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}

// Close adds what the connection has moved to the line's count.
func (c *conn) Close() error {
	c.cancel()
	c.l.mu.Lock()
	if c.l.conns[c] {
		c.l.former = c.l.former.plus(c.moved())
		delete(c.l.conns, c)
	}
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// timestamps is the option of TCP by that name, and its bytes in each packet.
const (
	timestamps     = 1
	timestampBytes = 12
)

// moved returns what the kernel has sent and received on the connection.
func (c *conn) moved() (m Moved) {
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return m // cannot be: the connection is one of TCP
	}
	_ = raw.Control(func(fd uintptr) { // it fails on a closed connection, whose bytes are counted already
		i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		header := c.header
		if i.Options&timestamps != 0 {
			header += timestampBytes
		}
		m = Moved{Up: int64(i.Bytes_sent) + int64(i.Segs_out)*header,
			Down: int64(i.Bytes_received) + int64(i.Segs_in)*header}
	})
	return m
}
