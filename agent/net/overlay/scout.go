package overlay

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/agent/net/netns"
	"github.com/musterhq/muster/agent/net/overlay/paths"
	"github.com/musterhq/muster/internal/agentapi"
)

// scout finds the size of the packets that pass to each peer of a kernel device. The kernel's WireGuard does
// not search for it: it fragments packets that are too large for the path, which is slow and hides the limit.
//
// A size is right if a packet of that size, wrapped, fits into the path as this host's kernel knows it, and if it
// arrives. The scout sends packets of the overlay from a socket in the guest's namespace, which the peer's scout
// answers; and, before each, a datagram of the wrapped size that must not be fragmented, to the peer's WireGuard, which
// ignores it: a router for which it is too large reports that to the kernel. Questions and answers are authenticated by
// a key that only the two hosts have, because programs of the renter send from the same address.
type scout struct {
	key    wgtypes.Key // private
	conn   *net.UDPConn
	outer  func(to netip.AddrPort) int           // room for overlay packets to an endpoint
	nudge  func(to netip.AddrPort, size int)     // sends the datagram that must not be fragmented
	resize func(inner netip.Addr, mtu int) error // sets the size of packets to a peer
	widen  func(mtu int) error                   // lets the device send packets of this size

	mu    sync.Mutex
	peers map[wgtypes.Key]*scouted
	inner map[netip.Addr]*scouted
	wide  int
}

// scouted is a peer and what is known of its path.
type scouted struct {
	address  netip.Addr // in the overlay
	endpoint netip.AddrPort
	secret   []byte
	climb    paths.Climb
	set      int // the size that packets to it have
	pending  map[scoutNonce]question
	rtt      time.Duration
}

type scoutNonce [8]byte

type question struct {
	at   time.Time
	size int
}

// scoutPort is the UDP port of the scouts in the overlay. It is in none of the ranges that programs usually use.
const scoutPort = 29401

const (
	scoutEvery   = 100 * time.Millisecond
	scoutPatient = 10 * time.Second // after which an answer no longer counts
	scoutProbe   = 1
	scoutEcho    = 2
	scoutProof   = 16
	scoutHead    = 4 + 1 + 4 + 8 // magic, kind, sender, nonce
	udpHeaders   = 20 + 8
)

var scoutMagic = [4]byte{'M', 'S', 'T', 'S'}

func newScout(key wgtypes.Key) *scout {
	return &scout{key: key, peers: map[wgtypes.Key]*scouted{}, inner: map[netip.Addr]*scouted{}}
}

// listen opens the socket in the guest's namespace. Its packets are never fragmented and are sent whatever size the
// routes give: the size that is tried is larger than the one in use.
func (s *scout) listen(ns *os.File, address net.IP) error {
	return netns.Inside(ns, func() error {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: address, Port: scoutPort})
		if err != nil {
			return fmt.Errorf("listen for the peers' probes of packet sizes: %w", err)
		}
		if err := discover(c, unix.IP_PMTUDISC_PROBE); err != nil {
			c.Close()
			return fmt.Errorf("probe packet sizes: %w", err)
		}
		s.conn = c
		return nil
	})
}

func discover(c *net.UDPConn, how int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, how)
	}); err != nil {
		return err
	}
	return set
}

// provoke sends a datagram of a size, without its IP and UDP headers, that must not be fragmented.
func provoke(to netip.AddrPort, size int) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return
	}
	defer c.Close()
	if to.Addr().Unmap().Is4() { // IPv6 routers fragment nothing
		if discover(c, unix.IP_PMTUDISC_DO) != nil {
			return
		}
	}
	_, _ = c.Write(make([]byte, size))
}

// meet sets or, with nil, removes peers.
func (s *scout) meet(peers map[wgtypes.Key]*agentapi.Peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, p := range peers {
		if old := s.peers[key]; old != nil && (p == nil || old.address.String() != p.Address) {
			delete(s.inner, old.address)
			delete(s.peers, key)
		}
		if p == nil || s.peers[key] != nil {
			continue
		}
		address, err := netip.ParseAddr(p.Address)
		if err != nil {
			return err
		}
		pair, err := paths.PairKey(s.key, key)
		if err != nil {
			return err
		}
		x := &scouted{address: address, secret: seal(pair, []byte("muster-size-v1")), set: DefaultMTU,
			pending: map[scoutNonce]question{}}
		s.peers[key], s.inner[address] = x, x
	}
	return nil
}

// seen stores where the device sends a peer's packets. Another address is another path, whose size is unknown.
func (s *scout) seen(key wgtypes.Key, endpoint netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.peers[key]; p != nil && p.endpoint != endpoint {
		p.endpoint, p.climb = endpoint, paths.Climb{}
	}
}

// paths returns how the peers that answer are reached.
func (s *scout) paths() map[wgtypes.Key]paths.Path {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[wgtypes.Key]paths.Path{}
	for key, p := range s.peers {
		if p.endpoint.IsValid() {
			out[key] = paths.Path{Kind: paths.KindOf(p.endpoint), Addr: p.endpoint.String(), RTT: p.rtt, MTU: p.set}
		}
	}
	return out
}

// run asks and answers until the socket is closed.
func (s *scout) run() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.receive()
	}()
	tick := time.NewTicker(scoutEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case now := <-tick.C:
			if err := s.tick(now); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
}

func (s *scout) close() {
	if s.conn != nil {
		s.conn.Close()
	}
}

// tick asks what is due and applies what was found.
func (s *scout) tick(now time.Time) error {
	type dueProbe struct {
		to   *scouted
		size int
		text []byte
	}
	var due []dueProbe
	var errs []error
	s.mu.Lock()
	for _, p := range s.peers {
		if !p.endpoint.IsValid() {
			continue
		}
		at := p.endpoint
		if size := p.climb.Due(func() int { return s.outer(at) }, now); size > 0 {
			due = append(due, dueProbe{p, size, s.probe(p, size, now)})
		}
		if want := p.climb.MTU(); want != p.set {
			if err := s.resize(p.address, want); err != nil {
				errs = append(errs, err)
				continue
			}
			p.set = want
		}
	}
	for _, d := range due {
		if d.size > s.wide {
			if err := s.widen(d.size); err != nil {
				errs = append(errs, err)
				continue
			}
			s.wide = d.size
		}
	}
	s.mu.Unlock()
	for _, d := range due {
		s.nudge(d.to.endpoint, d.size+paths.Tunnelling)
		_, _ = s.conn.WriteToUDPAddrPort(d.text, netip.AddrPortFrom(d.to.address, scoutPort)) // lost like any packet
	}
	return errors.Join(errs...)
}

// probe builds a question that is as large as an overlay packet of a size.
func (s *scout) probe(p *scouted, size int, now time.Time) []byte {
	for n, q := range p.pending {
		if now.Sub(q.at) > scoutPatient {
			delete(p.pending, n)
		}
	}
	var n scoutNonce
	_, _ = rand.Read(n[:])
	p.pending[n] = question{now, size}
	return p.message(scoutProbe, s.self(), n, size-udpHeaders)
}

// self is the address that this end's socket is bound to.
func (s *scout) self() [4]byte {
	a, _ := netip.AddrFromSlice(s.conn.LocalAddr().(*net.UDPAddr).IP)
	return a.Unmap().As4()
}

func (p *scouted) message(kind byte, from [4]byte, n scoutNonce, size int) []byte {
	out := make([]byte, 0, max(size, scoutHead+scoutProof))
	out = append(append(out, scoutMagic[:]...), kind)
	out = append(append(out, from[:]...), n[:]...)
	if pad := size - len(out) - scoutProof; pad > 0 {
		out = append(out, make([]byte, pad)...)
	}
	return append(out, seal(p.secret, out)[:scoutProof]...)
}

func seal(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)
}

// receive answers questions and takes answers until the socket is closed.
func (s *scout) receive() {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(scoutEvery) // an ICMP error of an earlier packet
			continue
		}
		if answer := s.take(buf[:n], from.Addr().Unmap(), time.Now()); answer != nil {
			_, _ = s.conn.WriteToUDPAddrPort(answer, netip.AddrPortFrom(from.Addr(), scoutPort))
		}
	}
}

// take handles a message and returns the answer to a question.
func (s *scout) take(msg []byte, from netip.Addr, now time.Time) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.inner[from]
	at := len(msg) - scoutProof
	if p == nil || at < scoutHead || [4]byte(msg) != scoutMagic || [4]byte(msg[5:9]) != from.As4() ||
		!hmac.Equal(msg[at:], seal(p.secret, msg[:at])[:scoutProof]) {
		return nil
	}
	n := scoutNonce(msg[9:scoutHead])
	switch msg[4] {
	case scoutProbe:
		return p.message(scoutEcho, s.self(), n, 0)
	case scoutEcho:
		q, ok := p.pending[n]
		if !ok {
			return nil
		}
		delete(p.pending, n)
		p.rtt = now.Sub(q.at)
		p.climb.Passed(q.size, s.outer(p.endpoint), now)
	}
	return nil
}
