package paths

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"

	"github.com/musterhq/muster/internal/agentapi"
)

// relay is this host's state of one relay.
type relay struct {
	name       string // host:port
	addrs      []netip.AddrPort
	turn       int // index of the address in use
	cookie     [agentapi.RelayCookieSize]byte
	greetedAt  time.Time
	tried      time.Time // addresses, the one in use first
	welcomedAt time.Time // time of the last welcome
	seen       netip.AddrPort
	looked     time.Time
}

const (
	helloNew     = 500 * time.Millisecond
	helloKeep    = 5 * time.Second // also keeps a router's mapping open
	welcomeGood  = 16 * time.Second
	addressTries = 3 * time.Second
	lookUpAgain  = time.Minute
)

// SetRelays sets the relays, and the token that authorises this host to use them.
func (b *Board) SetRelays(names []string, token string) error {
	if len(names) == 0 {
		b.replaceRelays(nil, nil)
		return nil
	}
	t, err := agentapi.ParseRelayToken(token)
	if err != nil {
		return err
	}
	b.replaceRelays(names, &t)
	return nil
}

func (b *Board) replaceRelays(names []string, t *agentapi.RelayToken) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.token = t
	var next []*relay
	for _, name := range names {
		i := slices.IndexFunc(b.relays, func(r *relay) bool { return r.name == name })
		if i >= 0 {
			next = append(next, b.relays[i])
			continue
		}
		r := &relay{name: name}
		if a, err := netip.ParseAddrPort(name); err == nil {
			r.addrs = []netip.AddrPort{plain(a)}
		}
		next = append(next, r)
	}
	b.relays = next
	for _, p := range b.peers {
		for w := range p.routes {
			if w.relayed && !slices.ContainsFunc(next, func(r *relay) bool { return slices.Contains(r.addrs, w.addr) }) {
				delete(p.routes, w)
			}
		}
	}
	b.rebuild()
	b.poke()
}

// hello is a message to a relay that is due.
type hello struct {
	ep   *conn.StdNetEndpoint
	text []byte
}

// dueHellos returns the hello messages to send now. Callers hold mu.
func (b *Board) dueHellos(now time.Time) []hello {
	var out []hello
	for _, r := range b.relays {
		if len(r.addrs) == 0 {
			if now.Sub(r.looked) > lookUpAgain {
				r.looked = now
				go b.lookUp(r)
			}
			continue
		}
		every := helloNew
		if now.Sub(r.welcomedAt) < welcomeGood {
			every = helloKeep
		} else if now.Sub(r.tried) > addressTries {
			r.turn, r.tried = (r.turn+1)%len(r.addrs), now
		}
		if now.Sub(r.greetedAt) < every || b.token == nil {
			continue
		}
		r.greetedAt = now
		out = append(out, hello{&conn.StdNetEndpoint{AddrPort: r.addrs[r.turn]}, b.token.Hello(r.cookie)})
	}
	return out
}

// lookUp resolves a relay's addresses.
func (b *Board) lookUp(r *relay) {
	host, port, err := net.SplitHostPort(r.name)
	if err != nil {
		return
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range found {
		r.addrs = append(r.addrs, netip.AddrPortFrom(a.Unmap(), uint16(n)))
	}
	b.rebuild()
	b.poke()
}

// answered handles a relay's reply.
func (b *Board) answered(r *relay, msg []byte) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case agentapi.RelayKind(msg) == agentapi.RelayChallenge && len(msg) == 4+agentapi.RelayCookieSize:
		cookie := [agentapi.RelayCookieSize]byte(msg[4:])
		if cookie != r.cookie {
			r.cookie, r.greetedAt = cookie, time.Time{}
		}
	case agentapi.RelayKind(msg) == agentapi.RelayWelcome && len(msg) == 4+agentapi.AddressSize:
		r.welcomedAt, r.seen = now, agentapi.AddressAt(msg[4:])
		for _, p := range b.peers {
			b.relayWays(p, now)
		}
	default:
		return
	}
	b.poke()
}

// relayWays adds a path to a peer for each relay that has welcomed this host. Callers hold mu.
func (b *Board) relayWays(p *peer, now time.Time) {
	for _, r := range b.relays {
		if now.Sub(r.welcomedAt) < welcomeGood && len(r.addrs) > 0 {
			p.add(way{addr: r.addrs[r.turn], relayed: true}, true, now)
		}
	}
}

// seenAt returns the addresses at which relays have seen this host. Callers hold mu.
func (b *Board) seenAt(now time.Time) []netip.AddrPort {
	var out []netip.AddrPort
	for _, r := range b.relays {
		if now.Sub(r.welcomedAt) < welcomeGood && r.seen.IsValid() && !slices.Contains(out, r.seen) {
			out = append(out, r.seen)
		}
	}
	return out
}

// wrapped is a batch of datagrams wrapped for a relay.
type wrapped struct {
	bufs [][]byte
	from *[]byte
}

// room is the size of a wrapped packet's buffer: larger than one packet, so that the kernel can take several at once.
const room = 1 << 14

var rooms = sync.Pool{New: func() any { b := make([]byte, 0); return &b }}

func wrap(bufs [][]byte, rank uint16) wrapped {
	w := wrapped{bufs: make([][]byte, len(bufs)), from: rooms.Get().(*[]byte)}
	if need := room * len(bufs); cap(*w.from) < need {
		*w.from = make([]byte, need)
	}
	all := (*w.from)[:cap(*w.from)]
	for i, b := range bufs {
		out := all[i*room : i*room+agentapi.RelayHeader : (i+1)*room]
		agentapi.PutRelayHeader(out, agentapi.RelayTo, rank)
		w.bufs[i] = append(out, b...)
	}
	return w
}

func (w wrapped) free() { rooms.Put(w.from) }
