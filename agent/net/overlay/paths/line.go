package paths

import (
	"net/netip"
	"slices"
	"sync/atomic"
)

// Line counts what an overlay exchanges, and how much of it uses the host's line to the internet. Traffic uses the line
// if it goes to or comes from a public address outside the networks that the host is in: directly, by hole punching or
// through a relay. Traffic within the building does not count.
type Line struct {
	up, down       atomic.Int64 // bytes that used the line
	sent, received atomic.Int64 // all
	nets           atomic.Pointer[[]netip.Prefix]
}

// Sum counts bytes of IP packets.
type Sum struct {
	Up       int64 `json:"up"` // over the host's line to the internet
	Down     int64 `json:"down"`
	Sent     int64 `json:"sent"` // by any path, including the line
	Received int64 `json:"received"`
}

// Plus returns the sum of both.
func (s Sum) Plus(o Sum) Sum {
	return Sum{Up: s.Up + o.Up, Down: s.Down + o.Down, Sent: s.Sent + o.Sent, Received: s.Received + o.Received}
}

// Sum returns what was counted so far.
func (l *Line) Sum() Sum {
	return Sum{Up: l.up.Load(), Down: l.down.Load(), Sent: l.sent.Load(), Received: l.received.Load()}
}

// Near sets the networks that the host is in.
func (l *Line) Near(nets []netip.Prefix) { l.nets.Store(&nets) }

// Outside reports whether traffic to an address uses the line.
func (l *Line) Outside(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	nets := l.nets.Load()
	return nets == nil || !slices.ContainsFunc(*nets, func(n netip.Prefix) bool { return n.Contains(a) })
}

// Add counts bytes of IP packets sent to an address and received from it.
func (l *Line) Add(a netip.Addr, up, down int64) {
	l.sent.Add(up)
	l.received.Add(down)
	if l.Outside(a) {
		l.up.Add(up)
		l.down.Add(down)
	}
}

// packets returns the size of datagrams as IP packets, in bytes.
func packets(a netip.Addr, payload, datagrams int) int64 {
	const udp, ip4, ip6 = 8, 20, 40
	if a.Unmap().Is4() {
		return int64(payload + datagrams*(udp+ip4))
	}
	return int64(payload + datagrams*(udp+ip6))
}

// out counts datagrams sent.
func (l *Line) out(to netip.Addr, bufs [][]byte) {
	size := 0
	for _, b := range bufs {
		size += len(b)
	}
	l.Add(to, packets(to, size, len(bufs)), 0)
}
