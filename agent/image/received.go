package image

import (
	"net"
	"sync/atomic"
)

// Received is how many bytes this process has received from registries at public addresses: layers, manifests and the
// encryption around them, whether or not an image came of it. What a registry at a private address sends, which Allow
// names, is not in it: it does not come over the host's line to the internet.
func (p *Puller) Received() int64 { return p.guard.received.Load() }

// counted adds what is read from a connection.
type counted struct {
	net.Conn
	received *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}
