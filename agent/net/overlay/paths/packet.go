package paths

import (
	"net/netip"
	"slices"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/musterhq/muster/internal/agentapi"
)

// receive handles a datagram and returns how many bytes of it are for WireGuard. The source becomes the peer's address
// if it is known to be that peer's; otherwise WireGuard decides by its keys.
func (b *Board) receive(buf []byte, size int, ep *conn.Endpoint) int {
	if size == 0 {
		return 0
	}
	from, ok := (*ep).(*conn.StdNetEndpoint)
	if !ok {
		return size
	}
	src := plain(from.AddrPort)
	t := b.table.Load()
	switch kind := agentapi.RelayKind(buf[:size]); {
	case kind == 0:
		if p := t.addrs[src]; p != nil {
			*ep = p.place
		}
		return size
	case kind == agentapi.RelayFrom:
		r := t.relays[src]
		if r == nil || size <= agentapi.RelayHeader {
			return 0
		}
		p := t.ranks[agentapi.RelayRank(buf)]
		inner := buf[agentapi.RelayHeader:size]
		if agentapi.RelayKind(inner) != 0 {
			b.handleMessage(t, inner, way{addr: src, relayed: true})
			return 0
		}
		if p == nil {
			return 0
		}
		*ep = p.place
		return copy(buf, inner)
	case kind >= 16:
		b.handleMessage(t, buf[:size], way{addr: src})
	default:
		if r := t.relays[src]; r != nil {
			b.answered(r, buf[:size])
		}
	}
	return 0
}

// Send implements conn.Bind.
func (b *Board) Send(bufs [][]byte, ep conn.Endpoint) error {
	switch e := ep.(type) {
	case *place:
		return b.sendTo(e.p, bufs)
	case *conn.StdNetEndpoint:
		if p := b.table.Load().addrs[plain(e.AddrPort)]; p != nil {
			return b.sendTo(p, bufs)
		}
		return b.send(bufs, e)
	}
	return b.udp.Send(bufs, ep)
}

// send writes datagrams to the socket.
func (b *Board) send(bufs [][]byte, to *conn.StdNetEndpoint) error {
	err := b.udp.Send(bufs, to)
	if err == nil {
		b.line.out(to.Addr(), bufs)
	}
	return err
}

func (b *Board) sendTo(p *peer, bufs [][]byte) error {
	if r := p.best.Load(); r != nil {
		err := b.write(r, p.rank, bufs)
		if err == nil {
			return nil
		}
		r.broken.Store(true) // the next tick chooses another path
		b.poke()
	}
	return b.sendBlind(p, bufs)
}

// small is the greatest size of packets that are sent on all paths at once: handshakes and keepalives.
const small = 148

// sendBlind sends to a peer none of whose paths has answered yet: handshakes to all its addresses, data to one of them.
func (b *Board) sendBlind(p *peer, bufs [][]byte) error {
	b.mu.Lock()
	routes := p.ordered()
	b.mu.Unlock()
	everywhere := !slices.ContainsFunc(bufs, func(x []byte) bool { return len(x) > small })
	for _, r := range routes {
		if err := b.write(r, p.rank, bufs); err == nil && !everywhere {
			return nil
		}
	}
	return nil // packets may be lost, as on any network
}

// write sends on one path.
func (b *Board) write(r *route, rank uint16, bufs [][]byte) error {
	if !r.relayed {
		return b.send(bufs, r.ep)
	}
	wrapped := wrap(bufs, rank)
	err := b.send(wrapped.bufs, r.ep)
	wrapped.free()
	return err
}

// sendMessage sends one of our own messages.
func (b *Board) sendMessage(r *route, rank uint16, msg []byte) error {
	return b.write(r, rank, [][]byte{msg})
}

func plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
