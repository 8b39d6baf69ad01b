package paths

import (
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
)

// Base is the overlay packet every path is taken to carry: with what is put around it, IPv6's minimum carries it
// nearly everywhere, and every line in use does.
const Base = 1280

// steps are the sizes that are tried, largest first: within jumbo frames, within Ethernet's 1500, within what lines
// with a tunnel of their own leave.
var steps = []int{8920, 1420, 1380, 1340}

// tunnelling is what WireGuard puts around a packet, within its datagram.
const tunnelling = 32

const (
	probeEvery = 300 * time.Millisecond
	probeTries = 3
	verify     = 20 * time.Second // a proven size is proven again: routers on the way change
)

// climb is the search for a way's size.
type climb struct {
	step  int // index in steps of the size that is tried
	tries int
	next  time.Time
	found bool // mtu is the largest that passes
}

// probeDue is the way in use if its size is to be tried now, and the size.
func (p *peer) probeDue(now time.Time) (*route, int) {
	r := p.best.Load()
	if r == nil || !r.live(now) || now.Before(r.climb.next) {
		return nil, 0
	}
	return r, r.climb.due(r, now)
}

// due is the size to try now, 0 when none is.
func (c *climb) due(r *route, now time.Time) int {
	c.next = now.Add(probeEvery)
	if c.found {
		if c.tries++; c.tries > probeTries { // it no longer passes
			*c = climb{next: now}
			r.mtu = 0
			return 0
		}
		if r.mtu > Base {
			return r.mtu
		}
		*c = climb{} // the way may have become wider
	}
	for c.step < len(steps) {
		if size := steps[c.step]; c.tries < probeTries && fits(r, size) {
			c.tries++
			return size
		}
		c.step, c.tries = c.step+1, 0
	}
	c.found, c.tries, c.next = true, 0, now.Add(verify)
	return 0
}

// passed notes that a size came through.
func (c *climb) passed(r *route, size int, now time.Time) {
	if !c.found && (c.step >= len(steps) || size != steps[c.step]) || !fits(r, size) {
		return // of a former search, or cut up on the way and put together again
	}
	r.mtu = size
	*c = climb{found: true, step: c.step, next: now.Add(verify)}
}

// fits reports whether an overlay packet of a size leaves this host in one piece, as far as the kernel knows the way.
func fits(r *route, size int) bool {
	around := 20 + 8 + tunnelling
	if r.addr.Addr().Is6() {
		around += 20
	}
	if r.relayed {
		around += agentapi.RelayHeader
	}
	return size+around <= pathMTU(r.addr)
}

// pathMTU asks the kernel what it knows of the way to an address: the device's size, or less if a router said so.
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
