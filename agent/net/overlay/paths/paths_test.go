package paths

import (
	"net/netip"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/internal/agentapi"
)

func newKey(t testing.TB) wgtypes.Key {
	t.Helper()
	k, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// pair is two boards that know each other; nothing is sent, both are closed.
func pair(t testing.TB) (a, b *Board) {
	t.Helper()
	ka, kb := newKey(t), newKey(t)
	a, b = New(ka, nil, func(int) {}), New(kb, nil, func(int) {})
	if err := a.SetPeer(kb.PublicKey(), 1, nil); err != nil {
		t.Fatal(err)
	}
	if err := b.SetPeer(ka.PublicKey(), 0, nil); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func only(b *Board) *peer {
	for _, p := range b.peers {
		return p
	}
	return nil
}

// A better kind wins; within a kind a much quicker one; what does not answer is never taken.
func TestChoose(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(addr, kind string, rtt time.Duration, ago time.Duration) *route {
		w := way{addr: netip.MustParseAddrPort(addr), relayed: kind == Relay}
		return &route{way: w, kind: kind, rtt: rtt, answeredAt: now.Add(-ago)}
	}
	relay := at("203.0.113.5:1", Relay, time.Millisecond, 0)
	punched := at("203.0.113.9:1", Punched, 90*time.Millisecond, 0)
	lan := at("10.0.0.1:1", LAN, 3*time.Millisecond, 0)
	quicker := at("10.0.0.2:1", LAN, 2*time.Millisecond, 0)
	muchQuicker := at("10.0.0.3:1", LAN, time.Millisecond, 0)
	silent := at("10.0.0.4:1", LAN, 1, alive+time.Millisecond)
	never := at("10.0.0.5:1", LAN, 0, 0)
	never.answeredAt = time.Time{}
	broken := at("10.0.0.6:1", LAN, 1, 0)
	broken.broken.Store(true)
	lan.near, quicker.near, muchQuicker.near, punched.near, relay.near = 1, 1, 1, 2, farthest
	far := at("10.0.0.7:1", LAN, time.Microsecond, 0)
	far.near = 2
	railed := at("203.0.113.10:1", Direct, time.Second, 0) // by a port that the operator has named
	for _, tc := range []struct {
		name   string
		was    *route
		routes []*route
		want   *route
	}{
		{"nothing answers", lan, []*route{silent, never, broken}, nil},
		{"a relay is better than nothing", nil, []*route{relay, silent}, relay},
		{"slow and straight before quick and relayed", relay, []*route{relay, punched}, punched},
		{"the common network before all", punched, []*route{relay, punched, lan}, lan},
		{"this host's own network before one behind a router", far, []*route{far, lan}, lan},
		{"a preferred port before all", lan, []*route{far, lan, railed}, railed},
		{"equals do not take turns", lan, []*route{lan, quicker}, lan},
		{"one that is much quicker is taken", lan, []*route{lan, muchQuicker}, muchQuicker},
		{"away from one that is silent", silent, []*route{silent, relay}, relay},
	} {
		routes := map[way]*route{}
		for _, r := range tc.routes {
			routes[r.way] = r
		}
		if got := choose(tc.was, routes, now); got != tc.want {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		addr string
		own  bool
		want string
	}{
		{"192.168.1.2:1", true, LAN}, {"10.0.0.2:1", false, LAN}, {"127.0.0.1:1", true, LAN}, {"[fd01::2]:1", true, LAN},
		{"203.0.113.2:1", true, Direct}, {"203.0.113.2:1", false, Punched}, {"[2001:db8::1]:1", true, Direct},
	} {
		if got := kindOf(way{addr: netip.MustParseAddrPort(tc.addr)}, tc.own); got != tc.want {
			t.Errorf("%s, its own %v: %s", tc.addr, tc.own, got)
		}
	}
}

// A question is accepted only from a peer that has the key, and an answer only to a question that was sent, on its
// path.
func TestOnlyThePeerIsHeard(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	now := time.Now()
	from := way{addr: netip.MustParseAddrPort("203.0.113.7:4000")}
	pa, pb := only(a), only(b)
	pa.add(from, true, now)
	ask := pa.ping(pa.routes[from], []netip.AddrPort{netip.MustParseAddrPort("198.51.100.3:5")}, 0, now)

	for i := range ask {
		spoilt := append([]byte(nil), ask...)
		spoilt[i] ^= 1
		b.handleMessage(b.table.Load(), spoilt, from)
		b.handleMessage(b.table.Load(), ask[:i], from)
	}
	if len(pb.routes) != 0 {
		t.Fatalf("a spoilt question was taken: %v", pb.routes)
	}
	b.handleMessage(b.table.Load(), ask, from)
	if len(pb.routes) != 2 || b.table.Load().addrs[netip.MustParseAddrPort("198.51.100.3:5")] != pb {
		t.Errorf("where the peer asks from and was seen at is not known: %v", pb.routes)
	}

	var n nonce
	for n = range pa.pending {
	}
	elsewhere := way{addr: netip.MustParseAddrPort("203.0.113.8:4000")}
	pa.add(elsewhere, true, now)
	answer := pb.message(kindAnswer, n, agentapi.AppendAddress(nil, from.addr), 0)
	a.handleMessage(a.table.Load(), pb.message(kindAnswer, nonce{1}, nil, 64), from)
	a.handleMessage(a.table.Load(), answer, elsewhere)
	if pa.best.Load() != nil {
		t.Fatal("an answer without a request, or on another path, made a path good")
	}
	a.handleMessage(a.table.Load(), answer, from)
	if r := pa.best.Load(); r == nil || r.way != from {
		t.Errorf("after the answer the way is %+v", r)
	}
	pa.routes[from].answeredAt = time.Time{}
	a.handleMessage(a.table.Load(), answer, from)
	if !pa.routes[from].answeredAt.IsZero() {
		t.Error("an answer was taken twice")
	}
}

// Paths that a peer announces do not fill the memory.
func TestRoutesAreBounded(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	p := only(a)
	for i := range 1000 {
		p.add(way{addr: netip.AddrPortFrom(netip.MustParseAddr("203.0.113.1"), uint16(i+1))}, false, time.Now())
	}
	for _, bad := range []string{"0.0.0.0:1", "224.0.0.1:1", "203.0.113.1:0"} {
		if p.add(way{addr: netip.MustParseAddrPort(bad)}, true, time.Now()) {
			t.Errorf("%s was taken", bad)
		}
	}
	if len(p.routes) > maxRoutes {
		t.Errorf("%d routes", len(p.routes))
	}
}

// A renewed token takes the place of the one before without anything else changing: the relay keeps its cookie and its
// welcome, peers the way through it, and the next hello brings the new token.
func TestARenewedTokenKeepsThePath(t *testing.T) {
	t.Parallel()
	secret := []byte("what the control plane and its relays share")
	a, _ := pair(t)
	names, at := []string{"203.0.113.5:3478"}, netip.MustParseAddrPort("203.0.113.5:3478")
	token := func(expires int64) agentapi.RelayToken {
		return agentapi.NewRelayToken(secret, agentapi.RelayClaims{
			Cluster: [16]byte{1},
			Epoch:   1,
			Expires: time.Unix(expires, 0),
		})
	}
	if err := a.SetRelays(names, token(1000).Text()); err != nil {
		t.Fatal(err)
	}
	cookie := [agentapi.RelayCookieSize]byte{4, 2}
	a.answered(a.relays[0], agentapi.Challenge(cookie))
	a.answered(a.relays[0], agentapi.Welcome(netip.MustParseAddrPort("198.51.100.3:5")))
	now := time.Now()
	p := only(a)
	r := p.routes[way{addr: at, relayed: true}]
	if r == nil {
		t.Fatal("the relay that welcomed us is no way to the peer")
	}
	r.answeredAt, r.rtt = now, time.Millisecond
	p.choose(now)
	if p.best.Load() != r {
		t.Fatal("the only way is not taken")
	}
	before := *a.relays[0]

	if err := a.SetRelays(names, token(2000).Text()); err != nil {
		t.Fatal(err)
	}
	if p.best.Load() != r || p.routes[r.way] != r {
		t.Error("the way through the relay was dropped")
	}
	if x := a.relays[0]; x.cookie != cookie || x.welcomedAt != before.welcomedAt || x.seen != before.seen ||
		a.table.Load().relays[at] != x {
		t.Errorf("the relay was forgotten: %+v", x)
	}
	hellos := a.dueHellos(now.Add(helloKeep + time.Second))
	if len(hellos) != 1 {
		t.Fatalf("%d hellos", len(hellos))
	}
	if c, err := agentapi.CheckHello(secret, hellos[0].text); err != nil || c.Expires.Unix() != 2000 {
		t.Errorf("the hello brings %+v: %v", c, err)
	}
	if got, _ := agentapi.HelloCookie(hellos[0].text); got != cookie {
		t.Errorf("the hello brings the cookie %x", got)
	}
}

func FuzzReceive(f *testing.F) {
	a, _ := pair(f)
	p := only(a)
	w := way{addr: netip.MustParseAddrPort("203.0.113.7:4000")}
	p.add(w, true, time.Now())
	f.Add(p.ping(p.routes[w], nil, 0, time.Now()))
	f.Add([]byte{'M', 's', 'R', agentapi.RelayFrom, 0, 1, 0, 0, 'M', 's', 'R', kindPing})
	f.Fuzz(func(t *testing.T, msg []byte) {
		a.handleMessage(a.table.Load(), msg, w)
	})
}

// A board that is woken often, as by every answer, sends no more probes than one that is not: an answer that caused a
// probe would cause the next answer.
func TestWakingSendsNoProbes(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	now := time.Now()
	if err := a.SetPeer(b.self, 1, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:4000")}); err != nil {
		t.Fatal(err)
	}
	p := only(a)
	r := p.routes[way{addr: netip.MustParseAddrPort("127.0.0.1:4000")}]
	r.answeredAt, r.climb = now, Climb{mtu: 1440, found: true, next: now.Add(verify)}
	p.choose(now)
	for i := range 1000 {
		a.tick(now.Add(time.Duration(i) * time.Millisecond))
		r.broken.Store(false) // the board is closed
	}
	if n := len(p.pending); n < 1 || n > 4 {
		t.Errorf("%d probes in a second", n)
	}
}
