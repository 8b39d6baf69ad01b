package paths

import (
	"cmp"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// way is one way to a peer: an address, or a relay's.
type way struct {
	addr    netip.AddrPort
	relayed bool
}

// The kinds of ways, best first.
const (
	LAN     = "lan"
	Direct  = "direct"
	Punched = "punched"
	Relay   = "relay"
)

// farthest is how near a relay is.
const farthest = 1 << 20

var ranking = map[string]int{LAN: 0, Direct: 1, Punched: 2, Relay: 3}

// route is a way and how it does.
type route struct {
	way
	kind       string
	near       int       // see New; a relay's is the farthest
	placed     time.Time // when that was looked at
	ep         *conn.StdNetEndpoint
	advertised bool // by the peer itself
	since      time.Time
	pingedAt   time.Time // the last question
	answeredAt time.Time // the last answer
	rtt        time.Duration
	broken     atomic.Bool // sending failed

	mtu   int // proven; 0 = Base
	climb climb
}

const (
	// alive is for how long after an answer a way is used: three questions that are not answered.
	alive = 3500 * time.Millisecond
	// Questions: while a way is new, so that two routers are asked at the same time; then once it is used, or warm, or
	// has never answered.
	pingNew  = 400 * time.Millisecond
	pingUsed = time.Second
	pingWarm = 2 * time.Second
	pingLost = 5 * time.Second
	newFor   = 15 * time.Second
	// placedFor is for how long it counts how near an address is: links go down and come up.
	placedFor = 5 * time.Second
	// forget is when an address that a peer was heard at, and that answers no more, is left out.
	forget    = time.Minute
	maxRoutes = 24
)

// peer is one other rank.
type peer struct {
	b          *Board
	key        wgtypes.Key
	rank       uint16
	place      *place
	pair       []byte // authenticates between the two
	ours       tag    // on what we send
	theirs     tag    // on what they send
	advertised []netip.AddrPort

	routes  map[way]*route
	pending map[nonce]question
	best    atomic.Pointer[route]
}

func newPeer(b *Board, key wgtypes.Key, rank int) (*peer, error) {
	pair, err := pairKey(b.key, key)
	if err != nil {
		return nil, err
	}
	p := &peer{b: b, key: key, rank: uint16(rank), pair: pair, ours: tagOf(pair, b.self), theirs: tagOf(pair, key),
		routes: map[way]*route{}, pending: map[nonce]question{}}
	p.place = &place{p}
	return p, nil
}

// add makes a way known. It reports whether it is new.
func (p *peer) add(w way, told bool, now time.Time) bool {
	if r := p.routes[w]; r != nil {
		if told && !r.advertised {
			r.advertised, r.kind = true, kindOf(w, true)
		}
		return false
	}
	if !w.addr.IsValid() || w.addr.Port() == 0 || w.addr.Addr().IsUnspecified() || w.addr.Addr().IsMulticast() ||
		len(p.routes) >= maxRoutes {
		return false
	}
	r := &route{way: w, kind: kindOf(w, told), advertised: told, since: now, ep: &conn.StdNetEndpoint{AddrPort: w.addr}}
	p.put(r, now)
	p.routes[w] = r
	return true
}

// put looks how near a way is.
func (p *peer) put(r *route, now time.Time) {
	r.placed, r.near = now, farthest
	if !r.relayed {
		r.near = p.b.near(r.addr.Addr())
	}
}

// kindOf tells what a way is by its address: one within a private network is only ever reached there, one the peer told
// is its own, and any other is what its router has for it.
func kindOf(w way, told bool) string {
	a := w.addr.Addr()
	switch {
	case w.relayed:
		return Relay
	case a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast():
		return LAN
	case told:
		return Direct
	}
	return Punched
}

// dropUntold leaves out addresses that a peer no longer tells and that do not answer.
func (p *peer) dropUntold() {
	for w, r := range p.routes {
		if r.advertised && !w.relayed && !slices.ContainsFunc(p.advertised,
			func(a netip.AddrPort) bool { return plain(a) == w.addr }) {
			r.advertised = false
		}
	}
}

func (r *route) live(now time.Time) bool {
	return !r.broken.Load() && !r.answeredAt.IsZero() && now.Sub(r.answeredAt) < alive
}

// due are the ways to ask now.
func (p *peer) due(now time.Time) []*route {
	var out []*route
	stale := false
	for w, r := range p.routes {
		every := pingLost
		switch {
		case r == p.best.Load():
			every = pingUsed
		case r.live(now):
			every = pingWarm
		case now.Sub(r.since) < newFor:
			every = pingNew
		case !r.advertised && !w.relayed && now.Sub(r.answeredAt) > forget && now.Sub(r.since) > forget:
			delete(p.routes, w)
			stale = true
			continue
		}
		if now.Sub(r.pingedAt) >= every {
			r.pingedAt = now
			if now.Sub(r.placed) >= placedFor {
				p.put(r, now)
			}
			out = append(out, r)
		}
	}
	for n, q := range p.pending {
		if now.Sub(q.at) > 10*time.Second {
			delete(p.pending, n)
		}
	}
	if stale {
		p.b.rebuild()
	}
	return out
}

// choose takes the best way that answers.
func (p *peer) choose(now time.Time) {
	was := p.best.Load()
	if best := choose(was, p.routes, now); best != was {
		p.best.Store(best)
	}
}

// choose is the best live way: one by a preferred interface, else by kind, within a kind the nearer and then the
// quicker one. The one in use stays unless another as good is much quicker, so that two equal ones do not take turns.
func choose(was *route, routes map[way]*route, now time.Time) *route {
	var best *route
	better := func(a, b *route) bool {
		if c := compare(a, b); c != 0 {
			return c < 0
		}
		switch {
		case b == was:
			return a.rtt < b.rtt/2
		case a == was:
			return b.rtt >= a.rtt/2
		}
		return a.rtt < b.rtt
	}
	for _, r := range routes {
		if r.live(now) && (best == nil || better(r, best)) {
			best = r
		}
	}
	return best
}

// compare orders ways by what they are, the better first.
func compare(a, b *route) int {
	preferred := func(r *route) int { return min(r.near, 1) }
	return cmp.Or(cmp.Compare(preferred(a), preferred(b)), cmp.Compare(ranking[a.kind], ranking[b.kind]),
		cmp.Compare(a.near, b.near))
}

// ordered are all ways: those that answered last first, then the likeliest. Callers hold the board's lock.
func (p *peer) ordered() []*route {
	out := make([]*route, 0, len(p.routes))
	for _, r := range p.routes {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *route) int {
		return cmp.Or(b.answeredAt.Compare(a.answeredAt), compare(a, b), a.addr.Compare(b.addr))
	})
	return out
}
