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

// way is one path to a peer: an address, or a relay's.
type way struct {
	addr    netip.AddrPort
	relayed bool
}

// These are the kinds of paths, best first.
const (
	LAN     = "lan"
	Direct  = "direct"
	Punched = "punched"
	Relay   = "relay"
)

// farthest is the rank of a relay's nearness.
const farthest = 1 << 20

var ranking = map[string]int{LAN: 0, Direct: 1, Punched: 2, Relay: 3}

// route is a path and its measurements.
type route struct {
	way
	kind       string
	near       int       // see New; relays have the greatest value
	placed     time.Time // when nearness was determined
	ep         *conn.StdNetEndpoint
	advertised bool // announced by the peer itself
	since      time.Time
	pingedAt   time.Time // time of the last probe
	answeredAt time.Time // time of the last reply
	rtt        time.Duration
	broken     atomic.Bool // whether sending failed

	climb Climb
}

const (
	// alive is how long a path is used after a reply: three probes without a reply.
	alive = 3500 * time.Millisecond
	// These are the intervals of probes: fast while a path is new, so that two routers are probed at the same time; then
	// one each for paths in use, warm paths, and paths that have never answered.
	pingNew  = 400 * time.Millisecond
	pingUsed = time.Second
	pingWarm = 2 * time.Second
	pingLost = 5 * time.Second
	newFor   = 15 * time.Second
	// placedFor is how long a determined nearness is valid, because links go down and come up.
	placedFor = 5 * time.Second
	// forget is when an address that a peer sent from, and that no longer answers, is removed.
	forget    = time.Minute
	maxRoutes = 24
)

// peer is one other rank.
type peer struct {
	b          *Board
	key        wgtypes.Key
	rank       uint16
	place      *place
	pair       []byte // authenticates messages between the two
	ours       tag    // tag of the messages we send
	theirs     tag    // tag of the messages we receive
	advertised []netip.AddrPort
	since      time.Time // when the peer was added
	flags      byte      // of its last probe, if reported; see consent
	reported   bool

	routes  map[way]*route
	pending map[nonce]question
	best    atomic.Pointer[route]
}

func newPeer(b *Board, key wgtypes.Key, rank int) (*peer, error) {
	pair, err := PairKey(b.key, key)
	if err != nil {
		return nil, err
	}
	p := &peer{b: b, key: key, rank: uint16(rank), pair: pair, ours: tagOf(pair, b.self), theirs: tagOf(pair, key),
		since: time.Now(), routes: map[way]*route{}, pending: map[nonce]question{}}
	p.place = &place{p}
	return p, nil
}

// add adds a path and reports whether it is new.
func (p *peer) add(w way, announced bool, now time.Time) bool {
	if r := p.routes[w]; r != nil {
		if announced && !r.advertised {
			r.advertised, r.kind = true, kindOf(w, true)
		}
		return false
	}
	if !w.addr.IsValid() || w.addr.Port() == 0 || w.addr.Addr().IsUnspecified() || w.addr.Addr().IsMulticast() ||
		len(p.routes) >= maxRoutes {
		return false
	}
	ep := &conn.StdNetEndpoint{AddrPort: w.addr}
	r := &route{way: w, kind: kindOf(w, announced), advertised: announced, since: now, ep: ep}
	p.put(r, now)
	p.routes[w] = r
	return true
}

// put determines how near a path is.
func (p *peer) put(r *route, now time.Time) {
	r.placed, r.near = now, farthest
	if !r.relayed {
		r.near = p.b.near(r.addr.Addr())
	}
}

// KindOf returns the kind of the path to an address that a peer announced.
func KindOf(a netip.AddrPort) string { return kindOf(way{addr: a}, true) }

// kindOf derives the kind of a path from its address: a private address is only ever reached within its network, an
// address that the peer announced is its own, and any other is what its router shows for it.
func kindOf(w way, announced bool) string {
	a := w.addr.Addr()
	switch {
	case w.relayed:
		return Relay
	case a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast():
		return LAN
	case announced:
		return Direct
	}
	return Punched
}

// dropUntold removes addresses that a peer no longer announces and that do not answer.
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

// due returns the paths to probe now.
func (p *peer) due(now time.Time) []*route {
	var out []*route
	stale := false
	for w, r := range p.routes {
		every := pingLost
		switch {
		case r == p.best.Load():
			every = pingUsed
			if !p.b.readySince.IsZero() && now.Sub(p.b.readySince) < readyFor {
				every = pingReady
			}
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

// choose switches to the best path that answers.
func (p *peer) choose(now time.Time) {
	was := p.best.Load()
	if best := choose(was, p.routes, now); best != was {
		p.best.Store(best)
	}
}

// choose returns the best live path: first those on a preferred interface, then by kind, within a kind by nearness and
// then by round-trip time. The path in use stays unless an equivalent one is much faster, so that two equal paths do
// not alternate.
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

// compare orders paths by kind and nearness, the better first.
func compare(a, b *route) int {
	preferred := func(r *route) int { return min(r.near, 1) }
	return cmp.Or(cmp.Compare(preferred(a), preferred(b)), cmp.Compare(ranking[a.kind], ranking[b.kind]),
		cmp.Compare(a.near, b.near))
}

// ordered returns all paths: those that answered last first, then the most likely ones. Callers hold the board's lock.
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
