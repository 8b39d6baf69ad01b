// Package paths is the outside of a host's userspace WireGuard: one UDP socket over which each peer is reached by the
// best way there is, which may change while data flows.
//
// Ways, best first: straight to an address within a network both share; to an address of the peer's own; to the
// address its router has for it (both send to each other at once, so that both routers let the other in); through a
// relay. Every way is proven by a question and its answer, asked again and again; WireGuard knows nothing of it and
// sees one peer that is always at the same place.
//
// What always holds:
//   - Questions and answers are authenticated by a key only the two ends have (from their WireGuard keys): nobody else
//     can make a way look good, or learn who the peers are.
//   - A way is used while it answers. When it stops, the next best one is used within seconds: ways that are not used
//     are kept warm.
//   - An end that knows none of this (an older agent) is still reached at the addresses it has told.
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

// Board is the socket and what is known of the ways to the peers. It implements conn.Bind.
type Board struct {
	udp  conn.Bind
	key  wgtypes.Key
	self wgtypes.Key // the public one

	line Line                 // what passes the socket
	near func(netip.Addr) int // how near an address is, 0 the nearest
	mtu  func(int)            // told when the size that passes to all peers has changed

	mu     sync.Mutex
	port   uint16 // 0: not open
	peers  map[wgtypes.Key]*peer
	relays []*relay
	token  *agentapi.RelayToken
	size   int
	stop   context.CancelFunc

	table atomic.Pointer[table] // what receiving needs, never changed in place
	wake  chan struct{}
	loop  sync.WaitGroup
}

// table finds peers by what a datagram shows.
type table struct {
	addrs  map[netip.AddrPort]*peer
	tags   map[tag]*peer
	ranks  map[uint16]*peer
	relays map[netip.AddrPort]*relay
}

// New makes a board for WireGuard's private key. near tells how near an address is by this host's own routes: 0 is a
// place that is preferred to all, 1 a network that the host is in, more is farther; nil: all are as near. mtu is called
// with the largest overlay packet that passes to every peer, whenever that changes; it begins at Base.
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

// SetPeer says where a peer may be found, or says so anew. The addresses are those it told itself.
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
	if p.rank != uint16(rank) { // sending reads it without the lock: a key has one rank for life
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

// Line is what the board counts of all that passes its socket.
func (b *Board) Line() *Line { return &b.line }

// Forget takes a peer out.
func (b *Board) Forget(key wgtypes.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.peers, key)
	b.rebuild()
}

// Path is how a peer is reached at present.
type Path struct {
	Kind string        // lan, direct, punched, relay; "" when no way answers
	Addr string        // where its packets go
	RTT  time.Duration // of the last question
	MTU  int           // overlay packet that passes
}

// Paths tells how each peer is reached.
func (b *Board) Paths() map[wgtypes.Key]Path {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[wgtypes.Key]Path, len(b.peers))
	for k, p := range b.peers {
		if r := p.best.Load(); r != nil {
			out[k] = Path{Kind: r.kind, Addr: r.addr.String(), RTT: r.rtt, MTU: max(r.mtu, Base)}
		} else {
			out[k] = Path{}
		}
	}
	return out
}

// rebuild makes the table anew. Callers hold mu.
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

// Endpoint is a peer's one place, as WireGuard is told of it: see ParseEndpoint.
func Endpoint(key wgtypes.Key) string { return "peer:" + key.String() }

// ParseEndpoint implements conn.Bind: an Endpoint's text, or a plain address.
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
func (e *place) DstToBytes() []byte  { return e.p.key[:] } // what cookies belong to: it does not change with the way
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

// tickEvery is how often it is looked what is due.
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

// tick asks what is due and takes the best ways.
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
	for _, p := range b.peers {
		for _, r := range p.due(now) {
			text := p.ping(r, mine, 0, now)
			out = append(out, message{r, p.rank, text})
		}
		if r, size := p.probeDue(now); r != nil {
			if text := p.ping(r, mine, size, now); text != nil {
				out = append(out, message{r, p.rank, text})
			}
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

// resize takes the size that passes to all peers that are reached. Callers hold mu.
func (b *Board) resize() bool {
	size := 0
	for _, p := range b.peers {
		if r := p.best.Load(); r != nil && (size == 0 || max(r.mtu, Base) < size) {
			size = max(r.mtu, Base)
		}
	}
	if size == 0 || size == b.size {
		return false
	}
	b.size = size
	return true
}
