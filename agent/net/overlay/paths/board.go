// Package paths is the outer side of a host's userspace WireGuard: one UDP socket over which each peer is reached by
// the best available path, which may change while data flows.
//
// Paths, best first: directly to an address within a network that both share; to a public address of the peer's own; to
// the address that its router shows for it (both ends send at the same time, so that both routers let the packets in);
// through a relay. Every path is verified by a probe and its reply, repeatedly. WireGuard is unaware of paths and sees
// one peer with a fixed endpoint.
//
// Invariants:
//   - Probes and replies are authenticated by a key that only the two ends have, derived from their WireGuard keys: no
//     third party can make a path look good, or learn who the peers are.
//   - A path is used while it answers. When it stops, the next best path is used within seconds: unused paths are kept
//     warm.
//   - An end that does not support probes (an older agent) is still reached at the addresses that it announced.
package paths

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/internal/agentapi"
)

// Board is the socket together with the state of the paths to the peers. It implements conn.Bind.
type Board struct {
	udp  conn.Bind
	key  wgtypes.Key
	self wgtypes.Key // our public key

	line Line                 // counts what passes the socket
	near func(netip.Addr) int // ranks how near an address is; 0 is nearest
	mtu  func(int)            // called when the packet size that reaches all peers has changed

	mu     sync.Mutex
	port   uint16 // 0: not open
	peers  map[wgtypes.Key]*peer
	relays []*relay
	token  *agentapi.RelayToken
	size   int
	stop   context.CancelFunc
	// able and sent are what this end puts into its probes, readySince and agreedSince since when this end and all ends
	// are ready to leave the board; see consent.
	able                    bool
	sent                    byte
	readySince, agreedSince time.Time

	table atomic.Pointer[table] // index for receiving; replaced, never modified
	wake  chan struct{}
	loop  sync.WaitGroup
}

// table finds a peer by the contents or source of a datagram.
type table struct {
	addrs  map[netip.AddrPort]*peer
	tags   map[tag]*peer
	ranks  map[uint16]*peer
	relays map[netip.AddrPort]*relay
}

// New returns a board for WireGuard's private key. near ranks addresses by this host's own routes: 0 is a preferred
// place, 1 a network that the host is in, and greater values are farther away; nil ranks all the same. mtu is called
// with the size of the largest overlay packet that reaches every peer whenever that size changes; the size starts at
// Base.
func New(key wgtypes.Key, near func(netip.Addr) int, mtu func(int)) *Board {
	if near == nil {
		near = func(netip.Addr) int { return 1 }
	}
	b := &Board{
		near:  near,
		udp:   conn.NewDefaultBind(),
		key:   key,
		self:  key.PublicKey(),
		mtu:   mtu,
		peers: map[wgtypes.Key]*peer{},
		size:  Base,
		wake:  make(chan struct{}, 1),
	}
	b.rebuild()
	return b
}

// SetPeer sets or replaces the addresses of a peer, as the peer announced them.
func (b *Board) SetPeer(key wgtypes.Key, rank int, addresses []netip.AddrPort) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[key]
	if p == nil {
		var err error
		if p, err = newPeer(b, key, rank); err != nil {
			return err
		}
		b.peers[key] = p
	}
	if p.rank != uint16(rank) { // read without the lock while sending: a key's rank never changes
		return errors.New("a peer's key has another rank")
	}
	p.advertised = addresses
	now := time.Now()
	for _, a := range addresses {
		p.add(way{addr: plain(a)}, true, now)
	}
	p.dropUntold()
	b.relayWays(p, now)
	b.rebuild()
	b.poke()
	return nil
}

// Line returns the counters of everything that passes the board's socket.
func (b *Board) Line() *Line { return &b.line }

// Forget removes a peer.
func (b *Board) Forget(key wgtypes.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.peers, key)
	b.rebuild()
}

// Path is how a peer is currently reached.
type Path struct {
	Kind string        // lan, direct, punched or relay; "" when no path answers
	Addr string        // where its packets are sent
	RTT  time.Duration // round-trip time of the last probe
	MTU  int           // size of the largest overlay packet that passes
}

// Paths returns how each peer is reached.
func (b *Board) Paths() map[wgtypes.Key]Path {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[wgtypes.Key]Path, len(b.peers))
	for k, p := range b.peers {
		if r := p.best.Load(); r != nil {
			out[k] = Path{Kind: r.kind, Addr: r.addr.String(), RTT: r.rtt, MTU: r.climb.MTU()}
		} else {
			out[k] = Path{}
		}
	}
	return out
}

// rebuild builds a new table. Callers hold mu.
func (b *Board) rebuild() {
	t := &table{
		addrs:  map[netip.AddrPort]*peer{},
		tags:   map[tag]*peer{},
		ranks:  map[uint16]*peer{},
		relays: map[netip.AddrPort]*relay{},
	}
	for _, r := range b.relays {
		for _, a := range r.addrs {
			t.relays[a] = r
		}
	}
	for _, p := range b.peers {
		t.tags[p.theirs] = p
		t.ranks[p.rank] = p
		for w := range p.routes {
			if !w.relayed {
				t.addrs[w.addr] = p
			}
		}
	}
	b.table.Store(t)
}

func (b *Board) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Open implements conn.Bind.
func (b *Board) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	fns, actual, err := b.udp.Open(port)
	if err != nil {
		return nil, 0, err
	}
	out := make([]conn.ReceiveFunc, len(fns))
	for i, f := range fns {
		out[i] = func(bufs [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
			n, err := f(bufs, sizes, eps)
			for i := range n {
				if from, ok := eps[i].(*conn.StdNetEndpoint); ok && sizes[i] > 0 {
					b.line.Add(from.Addr(), 0, packets(from.Addr(), sizes[i], 1))
				}
				sizes[i] = b.receive(bufs[i], sizes[i], &eps[i])
			}
			return n, err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	b.mu.Lock()
	b.port, b.stop = actual, stop
	b.mu.Unlock()
	b.loop.Go(func() { b.run(ctx) })
	return out, actual, nil
}

// Close implements conn.Bind.
func (b *Board) Close() error {
	b.mu.Lock()
	stop := b.stop
	b.port, b.stop = 0, nil
	b.mu.Unlock()
	if stop != nil {
		stop()
	}
	err := b.udp.Close()
	b.loop.Wait()
	return err
}

// SetMark implements conn.Bind.
func (b *Board) SetMark(m uint32) error { return b.udp.SetMark(m) }

// BatchSize implements conn.Bind.
func (b *Board) BatchSize() int { return b.udp.BatchSize() }

// Endpoint returns the fixed endpoint of a peer that WireGuard is configured with; see ParseEndpoint.
func Endpoint(key wgtypes.Key) string { return "peer:" + key.String() }

// ParseEndpoint implements conn.Bind: it accepts the text of an Endpoint, or a plain address.
func (b *Board) ParseEndpoint(s string) (conn.Endpoint, error) {
	if len(s) > 5 && s[:5] == "peer:" {
		key, err := wgtypes.ParseKey(s[5:])
		if err != nil {
			return nil, err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if p := b.peers[key]; p != nil {
			return p.place, nil
		}
		return nil, errors.New("no such peer")
	}
	return b.udp.ParseEndpoint(s)
}

// place is a peer as WireGuard's device addresses it.
type place struct{ p *peer }

func (e *place) ClearSrc()           {}
func (e *place) SrcToString() string { return "" }
func (e *place) SrcIP() netip.Addr   { return netip.Addr{} }
func (e *place) DstToBytes() []byte  { return e.p.key[:] } // cookies are bound to this; it is the same for all paths
func (e *place) DstIP() netip.Addr {
	if r := e.p.best.Load(); r != nil {
		return r.addr.Addr()
	}
	return netip.IPv4Unspecified()
}
func (e *place) DstToString() string {
	if r := e.p.best.Load(); r != nil {
		return r.addr.String()
	}
	return ""
}

// tickEvery is how often the board checks for due work.
const tickEvery = 200 * time.Millisecond

func (b *Board) run(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-b.wake:
		}
		b.tick(time.Now())
	}
}

// tick sends the probes that are due and chooses the best paths.
func (b *Board) tick(now time.Time) {
	type message struct {
		r    *route
		rank uint16
		text []byte
	}
	var out []message
	b.mu.Lock()
	hellos := b.dueHellos(now)
	mine := b.seenAt(now)
	changed := b.consent(now)
	for _, p := range b.peers {
		if r := p.best.Load(); changed && r != nil {
			r.pingedAt = time.Time{} // ping the peer at once
		}
		for _, r := range p.due(now) {
			text := p.ping(r, mine, 0, now)
			out = append(out, message{r, p.rank, text})
		}
		if r, size := p.probeDue(now); size > 0 {
			out = append(out, message{r, p.rank, p.ping(r, mine, size, now)})
		}
		p.choose(now)
	}
	resized := b.resize()
	size := b.size
	b.mu.Unlock()
	if resized {
		b.mtu(size)
	}
	for _, h := range hellos {
		_ = b.send([][]byte{h.text}, h.ep)
	}
	for _, m := range out {
		if err := b.sendMessage(m.r, m.rank, m.text); err != nil && !errors.Is(err, os.ErrClosed) {
			m.r.broken.Store(true)
		}
	}
}

// resize applies the packet size that reaches every connected peer. Callers hold mu.
func (b *Board) resize() bool {
	size := 0
	for _, p := range b.peers {
		if r := p.best.Load(); r != nil && (size == 0 || r.climb.MTU() < size) {
			size = r.climb.MTU()
		}
	}
	if size == 0 || size == b.size {
		return false
	}
	b.size = size
	return true
}
