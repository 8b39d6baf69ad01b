package paths

import (
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
)

// Base is the size of the overlay packet that every path is assumed to carry. With its headers it fits into IPv6's
// minimum MTU in nearly all cases, and into every line in use.
const Base = 1280

// steps are the sizes that are tried, largest first: those that fit into jumbo frames, into Ethernet's 1500 bytes, and
// into lines that add a tunnel header of their own. Before them, the size that fits into the path as the kernel knows
// it is tried: clouds have jumbo frames of 8896 or 8244 bytes, InfiniBand has 4092 or 2044.
var steps = []int{8920, 1420, 1380, 1340}

// sizes returns the sizes to try on a path that carries overlay packets of room bytes.
func sizes(room int) []int {
	first := min(room, steps[0])
	if first <= Base {
		return nil
	}
	out := []int{first}
	for _, s := range steps {
		if s < first {
			out = append(out, s)
		}
	}
	return out
}

// Tunnelling is the size of WireGuard's headers around a packet, within its datagram.
const Tunnelling = 32

const (
	probeEvery = 300 * time.Millisecond
	probeTries = 3
	verify     = 20 * time.Second // sizes are verified again, because routers change
)

// Climb is the search for the greatest overlay packet that a path carries. The zero Climb begins one. room is always
// how much leaves this host unfragmented, as far as the kernel knows the path.
type Climb struct {
	mtu   int   // verified size; 0 means Base
	sizes []int // to try, nil before the search begins
	step  int   // index in sizes of the size being tried
	tries int
	next  time.Time
	found bool // the greatest size that passed
}

// MTU returns the verified size.
func (c *Climb) MTU() int { return max(c.mtu, Base) }

// Due returns the size to try now, or 0.
func (c *Climb) Due(room func() int, now time.Time) int {
	if now.Before(c.next) {
		return 0
	}
	c.next = now.Add(probeEvery)
	if c.found {
		if c.tries++; c.tries > probeTries { // the size no longer passes
			*c = Climb{next: now}
			return 0
		}
		if c.mtu > Base {
			return c.mtu
		}
		*c = Climb{} // a greater size may pass by now
	}
	most := room()
	if c.sizes == nil {
		c.sizes = sizes(most)
	}
	for c.step < len(c.sizes) {
		if size := c.sizes[c.step]; c.tries < probeTries && size <= most {
			c.tries++
			return size
		}
		c.step, c.tries = c.step+1, 0
	}
	c.found, c.tries, c.next = true, 0, now.Add(verify)
	return 0
}

// Passed records that a size got through. A size of an earlier search does not count, nor one for which there is no
// room: it was fragmented and reassembled.
func (c *Climb) Passed(size, room int, now time.Time) {
	if !c.found && (c.step >= len(c.sizes) || size != c.sizes[c.step]) || size > room {
		return
	}
	*c = Climb{mtu: size, found: true, step: c.step, next: now.Add(verify)}
}

// probeDue returns the path in use and the size to try on it; the size is 0 if no size probe is due.
func (p *peer) probeDue(now time.Time) (*route, int) {
	r := p.best.Load()
	if r == nil || !r.live(now) {
		return nil, 0
	}
	return r, r.climb.Due(r.room, now)
}

// room returns the largest overlay packet that leaves this host unfragmented on the path.
func (r *route) room() int {
	room := Room(r.addr)
	if r.relayed {
		room -= agentapi.RelayHeader
	}
	return room
}

// Room returns the largest overlay packet that leaves this host unfragmented for an address.
func Room(to netip.AddrPort) int {
	around := 20 + 8 + Tunnelling
	if to.Addr().Unmap().Is6() {
		around += 20
	}
	return pathMTU(to) - around
}

// pathMTU returns what the kernel knows about the path to an address: the device's MTU, or less if a router said so.
func pathMTU(to netip.AddrPort) int {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to)) // sends nothing
	if err != nil {
		return 0
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	mtu := 0
	_ = raw.Control(func(fd uintptr) {
		if to.Addr().Is6() {
			mtu, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU)
		} else {
			mtu, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU)
		}
	})
	return mtu
}
