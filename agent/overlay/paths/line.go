package paths

import (
	"net/netip"
	"slices"
	"sync/atomic"
)

// Line counts what an overlay exchanges, and how much of it goes over the host's line to the internet. Over the line
// goes what is sent to and comes from public addresses outside the networks that the host is in: straight, by a hole in
// a router or through a relay. What stays within the building does not.
type Line struct {
	up, down       atomic.Int64 // over the line
	sent, received atomic.Int64 // all
	nets           atomic.Pointer[[]netip.Prefix]
}

// Sum is bytes of IP packets.
type Sum struct {
	Up       int64 `json:"up"` // over the host's line to the internet
	Down     int64 `json:"down"`
	Sent     int64 `json:"sent"` // by whichever way, the line included
	Received int64 `json:"received"`
}

// Plus is both together.
func (s Sum) Plus(o Sum) Sum {
	return Sum{Up: s.Up + o.Up, Down: s.Down + o.Down, Sent: s.Sent + o.Sent, Received: s.Received + o.Received}
}

// Sum is what was counted so far.
func (l *Line) Sum() Sum {
	return Sum{Up: l.up.Load(), Down: l.down.Load(), Sent: l.sent.Load(), Received: l.received.Load()}
}

// Near says which networks the host is in.
func (l *Line) Near(nets []netip.Prefix) { l.nets.Store(&nets) }

// Outside reports whether what goes to an address goes over the line.
func (l *Line) Outside(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	nets := l.nets.Load()
	return nets == nil || !slices.ContainsFunc(*nets, func(n netip.Prefix) bool { return n.Contains(a) })
}

// Add counts bytes of IP packets that went to an address and came from there.
func (l *Line) Add(a netip.Addr, up, down int64) {
	l.sent.Add(up)
	l.received.Add(down)
	if l.Outside(a) {
		l.up.Add(up)
		l.down.Add(down)
	}
}

// packets is how many bytes datagrams are as IP packets.
func packets(a netip.Addr, payload, datagrams int) int64 {
	const udp, ip4, ip6 = 8, 20, 40
	if a.Unmap().Is4() {
		return int64(payload + datagrams*(udp+ip4))
	}
	return int64(payload + datagrams*(udp+ip6))
}

// out counts datagrams that were sent.
func (l *Line) out(to netip.Addr, bufs [][]byte) {
	size := 0
	for _, b := range bufs {
		size += len(b)
	}
	l.Add(to, packets(to, size, len(bufs)), 0)
}
