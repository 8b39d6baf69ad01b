package relay

import (
	"bytes"
	"crypto/rand"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

var secret = bytes.Repeat([]byte{7}, 32)

func start(t *testing.T, mbps int) *Relay {
	t.Helper()
	r, err := Start(Config{Listen: "127.0.0.1:0", Secret: secret, RateMbps: mbps, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(t.Context()) })
	return r
}

// client is a rank's socket.
type client struct {
	*net.UDPConn
	t     *testing.T
	relay netip.AddrPort
	token agentapi.RelayToken
}

func claims(cluster byte, rank int) agentapi.RelayClaims {
	return agentapi.RelayClaims{
		Cluster: [16]byte{cluster},
		Rank:    uint16(rank),
		Epoch:   2,
		Expires: time.Now().Add(time.Hour),
	}
}

func dial(t *testing.T, r *Relay, token agentapi.RelayToken) *client {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{c, t, r.Addr(), token}
}

func (c *client) send(b []byte) {
	c.t.Helper()
	if _, err := c.WriteToUDPAddrPort(b, c.relay); err != nil {
		c.t.Fatal(err)
	}
}

// next is the next datagram, nil when none comes in time.
func (c *client) next(wait time.Duration) []byte {
	buf := make([]byte, 1<<16)
	_ = c.SetReadDeadline(time.Now().Add(wait))
	n, err := c.Read(buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

const long = time.Minute

// join says hello as a host does and returns the address it is seen at.
func (c *client) join() netip.AddrPort {
	c.t.Helper()
	c.send(c.token.Hello([16]byte{}))
	ch := c.next(long)
	if agentapi.RelayKind(ch) != agentapi.RelayChallenge {
		c.t.Fatalf("answer to the first hello: %x", ch)
	}
	c.send(c.token.Hello([16]byte(ch[4:])))
	w := c.next(long)
	if agentapi.RelayKind(w) != agentapi.RelayWelcome {
		c.t.Fatalf("answer to the second hello: %x", w)
	}
	return agentapi.AddressAt(w[4:])
}

func packet(to int, text string) []byte {
	b := append(make([]byte, agentapi.RelayHeader), text...)
	agentapi.PutRelayHeader(b, agentapi.RelayTo, uint16(to))
	return b
}

// awaitDrop waits until the relay has dropped something for a reason.
func awaitDrop(t *testing.T, r *Relay, reason string) {
	t.Helper()
	for deadline := time.Now().Add(long); r.Dropped(reason) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing was dropped as %s", reason)
		}
	}
}

// Ranks of a cluster reach each other; those of another cluster, and strangers, do not.
func TestCarriesWithinACluster(t *testing.T) {
	t.Parallel()
	r := start(t, 0)
	a := dial(t, r, agentapi.NewRelayToken(secret, claims(1, 0)))
	b := dial(t, r, agentapi.NewRelayToken(secret, claims(1, 1)))
	other := dial(t, r, agentapi.NewRelayToken(secret, claims(2, 1)))
	for _, c := range []*client{a, b, other} {
		if seen := c.join(); seen != c.LocalAddr().(*net.UDPAddr).AddrPort() {
			t.Errorf("seen at %s", seen)
		}
	}
	a.send(packet(1, "hello"))
	if got := b.next(long); agentapi.RelayKind(got) != agentapi.RelayFrom || agentapi.RelayRank(got) != 0 ||
		string(got[agentapi.RelayHeader:]) != "hello" {
		t.Errorf("got %q", got)
	}
	other.send(packet(0, "into another cluster"))
	awaitDrop(t, r, "absent")
	stranger := dial(t, r, a.token)
	stranger.send(packet(1, "without a hello"))
	awaitDrop(t, r, "unknown")
	a.send(packet(1, "last"))
	if got := b.next(long); string(got[agentapi.RelayHeader:]) != "last" {
		t.Errorf("got %q in between", got)
	}
	if packets, _ := r.Carried(); packets != 2 || r.Sessions() != 3 {
		t.Errorf("%d packets of %d sessions", packets, r.Sessions())
	}
}

// Who has no token, one of another control plane, one that has expired, or one of an epoch that is over is not
// admitted; no one is answered with more than was sent.
func TestAdmitsByToken(t *testing.T) {
	t.Parallel()
	r := start(t, 0)
	expired := claims(1, 0)
	expired.Expires = time.Now().Add(-time.Hour)
	newer, older := claims(1, 3), claims(1, 3)
	older.Epoch = 1
	dial(t, r, agentapi.NewRelayToken(secret, newer)).join()
	for _, tc := range []struct {
		name, reason string
		token        agentapi.RelayToken
	}{
		{"foreign", "token", agentapi.NewRelayToken(bytes.Repeat([]byte{8}, 32), claims(1, 1))},
		{"expired", "token", agentapi.NewRelayToken(secret, expired)},
		{"former epoch", "epoch", agentapi.NewRelayToken(secret, older)},
	} {
		before := r.Dropped(tc.reason)
		c := dial(t, r, tc.token)
		c.send(c.token.Hello([16]byte{}))
		ch := c.next(long)
		c.send(c.token.Hello([16]byte(ch[4:])))
		for deadline := time.Now().Add(long); r.Dropped(tc.reason) == before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: admitted", tc.name)
			}
		}
	}
	c := dial(t, r, agentapi.NewRelayToken(secret, claims(1, 5)))
	hello := c.token.Hello([16]byte{})
	c.send(hello)
	if answer := c.next(long); len(answer) > len(hello) {
		t.Errorf("%d bytes are answered with %d", len(hello), len(answer))
	}
	// Another's cookie does not do: it belongs to an address.
	d := dial(t, r, c.token)
	d.send(hello)
	foreign := d.next(long)
	c.send(c.token.Hello([16]byte(foreign[4:])))
	if answer := c.next(long); agentapi.RelayKind(answer) != agentapi.RelayChallenge {
		t.Errorf("with another address's cookie: %x", answer)
	}
}

// A rank has a rate; what is above it is dropped.
func TestRate(t *testing.T) {
	t.Parallel()
	r := start(t, 1)
	a := dial(t, r, agentapi.NewRelayToken(secret, claims(1, 0)))
	b := dial(t, r, agentapi.NewRelayToken(secret, claims(1, 1)))
	a.join()
	b.join()
	big := packet(1, string(make([]byte, 1200)))
	for range 500 {
		a.send(big)
	}
	awaitDrop(t, r, "rate")
}

// A rank that says hello from elsewhere is found there, and one that is silent is forgotten.
func TestMovesAndIsForgotten(t *testing.T) {
	t.Parallel()
	r := start(t, 0)
	a := dial(t, r, agentapi.NewRelayToken(secret, claims(1, 0)))
	b := dial(t, r, agentapi.NewRelayToken(secret, claims(1, 1)))
	a.join()
	b.join()
	moved := dial(t, r, b.token)
	moved.join()
	a.send(packet(1, "where are you"))
	if got := moved.next(long); got == nil || string(got[agentapi.RelayHeader:]) != "where are you" {
		t.Errorf("at the new address: %q", got)
	}
	r.forget(time.Now().Add(keep + time.Second))
	if r.Sessions() != 0 {
		t.Errorf("%d sessions are remembered", r.Sessions())
	}
}

// A session ends with its token, though the rank goes on saying hello with it; one whose token is renewed goes on as if
// nothing had been.
func TestSessionsEndWithTheirTokens(t *testing.T) {
	t.Parallel()
	began := time.Now()
	var ahead atomic.Int64 // nanoseconds: the relay's clock is moved, nothing waits
	now := func() time.Time { return began.Add(time.Duration(ahead.Load())) }
	r, err := Start(Config{Listen: "127.0.0.1:0", Secret: secret, Now: now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(t.Context()) })
	until := func(rank int, d time.Duration) agentapi.RelayToken {
		c := claims(1, rank)
		c.Expires = began.Add(d)
		return agentapi.NewRelayToken(secret, c)
	}
	a, b := dial(t, r, until(0, time.Minute)), dial(t, r, until(1, time.Hour))
	passes := func(from, to *client, rank int, when string) {
		t.Helper()
		from.send(packet(rank, when))
		if got := to.next(long); got == nil || string(got[agentapi.RelayHeader:]) != when {
			t.Fatalf("%s: got %q", when, got)
		}
	}
	refused := func(reason string, send func()) {
		t.Helper()
		before := r.Dropped(reason)
		send()
		for deadline := time.Now().Add(long); r.Dropped(reason) == before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("nothing was dropped as %s", reason)
			}
		}
	}
	a.join()
	b.join()
	passes(a, b, 1, "while both last")

	ahead.Store(int64(50 * time.Second)) // within what a silent rank is remembered, counted from these hellos
	a.join()
	b.join()
	ahead.Store(int64(62 * time.Second))
	refused("unknown", func() { a.send(packet(1, "with a token that has ended")) })
	refused("absent", func() { b.send(packet(0, "to a rank whose token has ended")) })
	refused("token", func() {
		a.send(a.token.Hello([16]byte{}))
		ch := a.next(long)
		if agentapi.RelayKind(ch) != agentapi.RelayChallenge {
			t.Fatalf("answer: %x", ch)
		}
		a.send(a.token.Hello([16]byte(ch[4:])))
	})

	a.token = until(0, 2*time.Minute)
	a.join()
	b.join()
	r.mu.RLock()
	first := r.byRank[place{[16]byte{1}, 0}]
	r.mu.RUnlock()
	a.token = until(0, time.Hour)
	for _, d := range []time.Duration{85 * time.Second, 105 * time.Second, 125 * time.Second} {
		// the token before ends at 120 s
		ahead.Store(int64(d))
		passes(a, b, 1, "to the other after "+d.String())
		passes(b, a, 0, "from the other after "+d.String())
		a.join()
		b.join()
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.byRank[place{[16]byte{1}, 0}] != first {
		t.Error("the session did not go on")
	}
}

// Nothing a stranger sends brings it down or is answered.
func TestNoise(t *testing.T) {
	t.Parallel()
	r := start(t, 0)
	c := dial(t, r, agentapi.NewRelayToken(secret, claims(1, 0)))
	for n := range 200 {
		b := make([]byte, n)
		_, _ = rand.Read(b)
		if n > 4 {
			copy(b, agentapi.RelayMagic[:])
			b[3] = byte(n % 8)
		}
		if n != 128 {
			c.send(b)
		}
	}
	c.join()
}

// The relay sends to another port of a sender that has proven its address, from a port of its own, and to no other
// address. It sends less than it receives.
func TestReach(t *testing.T) {
	t.Parallel()
	r := start(t, 0)
	c := dial(t, r, agentapi.RelayToken{})
	listener, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := uint16(listener.LocalAddr().(*net.UDPAddr).Port)
	nonce := [agentapi.RelayNonceSize]byte{1, 2, 3}
	request := agentapi.Reach([agentapi.RelayCookieSize]byte{}, port, nonce)
	c.send(request)
	b := make([]byte, 256)
	n, err := c.Read(b)
	if err != nil || agentapi.RelayKind(b[:n]) != agentapi.RelayChallenge || n > len(request) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	c.send(agentapi.Reach([agentapi.RelayCookieSize]byte(b[4:n]), 80, nonce)) // not a port of an overlay's
	c.send(agentapi.Reach([agentapi.RelayCookieSize]byte(b[4:n]), port, nonce))
	n, from, err := listener.ReadFromUDPAddrPort(b)
	if err != nil || !bytes.Equal(b[:n], agentapi.Reached(nonce)) || n > len(request) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if from.Port() == r.Addr().Port() {
		t.Error("it came from the port that the request was sent to: a firewall takes it for an answer")
	}
	if got := r.Dropped("malformed"); got != 1 {
		t.Errorf("%d dropped, want the one to port 80", got)
	}
}
