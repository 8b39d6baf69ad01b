package image

import (
	"net"
	"sync/atomic"
)

// Received returns how many bytes this process has received from registries at public addresses: layers, manifests and
// TLS overhead, whether or not a pull succeeded. Traffic from registries at private addresses, which Allow names, is
// not included, because it does not use the host's line to the internet.
func (p *Puller) Received() int64 { return p.guard.received.Load() }

// counted counts what is read from a connection.
type counted struct {
	net.Conn
	received *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}
