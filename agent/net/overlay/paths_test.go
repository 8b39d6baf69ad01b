package overlay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/serve/relay"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// patient is for what depends on a loaded machine.
const patient = 2 * time.Minute

// site is a rank on a machine of a test net.
type site struct {
	*rank
	host *testnet.Host
}

var relaySecret = bytes.Repeat([]byte{3}, 32)

func newSite(t *testing.T, host *testnet.Host, n int, relays []string, advertise ...string) *site {
	t.Helper()
	return startSite(t, host, n, relays, func(c *Config) { c.Userspace, c.Advertise = true, advertise })
}

func startSite(t *testing.T, host *testnet.Host, n int, relays []string, set func(*Config)) *site {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(leasefiles.At(dir).Overlay, 0o700); err != nil {
		t.Fatal(err)
	}
	s := &site{&rank{n: n, ns: newNamespace(t)}, host}
	s.cfg = Config{Dir: dir, Ref: agentapi.LeaseRef{Lease: fmt.Sprintf("lease_%d", n), Epoch: 1}, NetNS: s.ns.path(),
		Address: address(n), CIDR: cidr}
	set(&s.cfg)
	t.Cleanup(func() {
		if err := Stop(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	if err := host.Inside(func() (err error) { s.h, err = Ensure(t.Context(), s.cfg); return err }); err != nil {
		t.Fatal(err)
	}
	token := agentapi.NewRelayToken(relaySecret, agentapi.RelayClaims{
		Cluster: [16]byte{1},
		Rank:    uint16(n),
		Epoch:   1,
		Expires: time.Now().Add(time.Hour),
	})
	if err := s.h.SetRelays(t.Context(), relays, token.Text()); err != nil {
		t.Fatal(err)
	}
	return s
}

// introduce announces all ranks to each other.
func introduce(t *testing.T, sites ...*site) {
	t.Helper()
	for _, s := range sites {
		var peers []agentapi.Peer
		for _, o := range sites {
			if o != s {
				peers = append(peers, o.peer())
			}
		}
		if err := s.h.SetPeers(t.Context(), peers); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *site) to(t *testing.T, rank int) PeerStatus {
	t.Helper()
	st, err := s.h.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range st.Peers {
		if p.Rank == rank {
			return p
		}
	}
	return PeerStatus{}
}

func (s *site) awaitPath(t *testing.T, rank int, want string) {
	t.Helper()
	var last PeerStatus
	deadline := time.Now().Add(patient)
	for {
		if last = s.to(t, rank); last.Path == want && !last.LastHandshake.IsZero() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("rank %d reaches rank %d by %q at %s, not by %q: %+v", s.n, rank, last.Path, last.Endpoint, want, last)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func startRelay(t *testing.T, h *testnet.Host, listen string) *relay.Relay {
	t.Helper()
	var r *relay.Relay
	err := h.Inside(func() (err error) {
		r, err = relay.Start(relay.Config{Listen: listen, Secret: relaySecret, Log: slog.New(slog.DiscardHandler)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(context.Background()) })
	return r
}

// exchange sends a line from one rank to another over the overlay.
func exchange(t *testing.T, from, to *site) {
	t.Helper()
	l := to.ns.listen(t, address(to.n)+":0")
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			fmt.Fprintf(c, "rank %d", to.n)
			c.Close()
		}
	}()
	got, err := io.ReadAll(from.dial(t, l.Addr().String()))
	if want := fmt.Sprintf("rank %d", to.n); string(got) != want || err != nil {
		t.Errorf("rank %d receives %q from rank %d: %v", from.n, got, to.n, err)
	}
}

// Ranks reach each other by the best way there is: in one network, at an address of the peer's own, through two routers
// that keep ports, and where a router does not, through the relay.
func TestBestPath(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	internet := n.Segment()
	rh := n.Host("relay")
	rh.Join(internet, "203.0.113.5/24")
	r := startRelay(t, rh, "203.0.113.5:3478")
	relays := []string{"203.0.113.5:3478"}
	home := func(name string, k int, kind testnet.NAT) (*testnet.Segment, string) {
		lan, gw := n.Segment(), fmt.Sprintf("192.168.%d.1", k)
		n.Router("router-"+name, lan, gw+"/24", internet, fmt.Sprintf("203.0.113.%d/24", 100+k), kind)
		return lan, gw
	}
	rank := 0
	behind := func(name string, lan *testnet.Segment, gw, ip string) *site {
		h := n.Host(name)
		h.Join(lan, ip+"/24")
		h.Route("default", gw)
		rank++
		return newSite(t, h, rank-1, relays, ip)
	}
	lan1, gw1 := home("one", 1, testnet.Preserving)
	lan2, gw2 := home("two", 2, testnet.Preserving)
	lan3, gw3 := home("three", 3, testnet.Symmetric)
	lan4, gw4 := home("four", 4, testnet.Symmetric)
	a, b := behind("a", lan1, gw1, "192.168.1.10"), behind("b", lan1, gw1, "192.168.1.11")
	c := behind("c", lan2, gw2, "192.168.2.10")
	d, e := behind("d", lan3, gw3, "192.168.3.10"), behind("e", lan4, gw4, "192.168.4.10")
	open := n.Host("open")
	open.Join(internet, "203.0.113.50/24")
	f := newSite(t, open, 5, relays, "203.0.113.50")
	introduce(t, a, b, c, d, e, f)

	for _, tc := range []struct {
		from, to *site
		want     string
	}{
		{a, b, "lan"}, {b, a, "lan"},
		{a, f, "direct"}, {d, f, "direct"}, {f, a, "punched"}, {f, e, "punched"},
		{a, c, "punched"}, {c, b, "punched"},
		{d, e, "relay"}, {e, d, "relay"}, {a, d, "relay"},
	} {
		tc.from.awaitPath(t, tc.to.n, tc.want)
		exchange(t, tc.from, tc.to)
	}
	if packets, _ := r.Carried(); packets == 0 || r.Sessions() != 6 {
		t.Errorf("the relay carried %d packets of %d ranks", packets, r.Sessions())
	}

	// What goes over a host's line is what leaves its network: through holes in routers and through the relay.
	const much = 8 << 20
	for _, tc := range []struct {
		from, to *site
		outside  bool
	}{{a, b, false}, {a, c, true}, {d, e, true}} {
		sent, received := tc.from.moved(t), tc.to.moved(t)
		carry(t, tc.from, tc.to, much)
		sent, received = tc.from.moved(t).minus(sent), tc.to.moved(t).minus(received)
		if sent.Sent < much || received.Received < much || (sent.Up >= much) != tc.outside ||
			(received.Down >= much) != tc.outside {
			t.Errorf("rank %d to %d: sent %+v, received %+v", tc.from.n, tc.to.n, sent, received)
		}
	}
}

// moved is what a site's overlay has counted until now.
func (s *site) moved(t *testing.T) counted {
	t.Helper()
	if _, err := call(t.Context(), s.h.dir, request{Op: "note"}); err != nil {
		t.Fatal(err)
	}
	m, err := ReadTraffic(s.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return counted(m)
}

type counted Traffic

func (m counted) minus(o counted) counted {
	return counted{Up: m.Up - o.Up, Down: m.Down - o.Down, Sent: m.Sent - o.Sent, Received: m.Received - o.Received}
}

// carry takes bytes from one rank to another over the overlay.
func carry(t *testing.T, from, to *site, size int64) {
	t.Helper()
	l := to.ns.listen(t, address(to.n)+":0")
	defer l.Close()
	got := make(chan int64, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- 0
			return
		}
		n, _ := io.Copy(io.Discard, c)
		c.Close()
		got <- n
	}()
	c := from.dial(t, l.Addr().String())
	if _, err := io.CopyN(c, rand.NewChaCha8([32]byte{4}), size); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if n := <-got; n != size {
		t.Fatalf("%d of %d bytes arrived", n, size)
	}
}

// flow sends data from one rank to another until it is stopped, and knows how much has arrived whole.
type flow struct {
	arrived atomic.Int64
	stop    func()
	sums    chan [sha256.Size]byte
}

func startFlow(t *testing.T, from, to *site) *flow {
	t.Helper()
	l := to.ns.listen(t, address(to.n)+":0")
	f := &flow{sums: make(chan [sha256.Size]byte, 2)}
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		h := sha256.New()
		buf := make([]byte, 1<<16)
		for {
			k, err := c.Read(buf)
			h.Write(buf[:k])
			f.arrived.Add(int64(k))
			if err != nil {
				break
			}
		}
		f.sums <- [sha256.Size]byte(h.Sum(nil))
	}()
	c := from.dial(t, l.Addr().String())
	var done atomic.Bool
	f.stop = func() { done.Store(true) }
	go func() {
		h, src, buf := sha256.New(), rand.NewChaCha8([32]byte{2}), make([]byte, 1<<15)
		for !done.Load() {
			src.Read(buf)
			if _, err := c.Write(buf); err != nil {
				break
			}
			h.Write(buf)
			time.Sleep(time.Millisecond) // leaves the machine to others
		}
		c.(*net.TCPConn).CloseWrite()
		f.sums <- [sha256.Size]byte(h.Sum(nil))
	}()
	return f
}

func (f *flow) moves(t *testing.T, when string) {
	t.Helper()
	before := f.arrived.Load()
	await(t, "data arrives "+when, patient, func() bool { return f.arrived.Load() > before+1<<20 })
}

// A connection lives while the way under it changes: the common network fails, then the straight way, then they return.
func TestPathChangesUnderTraffic(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	lan, internet := n.Segment(), n.Segment()
	rh := n.Host("relay")
	rh.Join(internet, "203.0.113.5/24")
	startRelay(t, rh, "203.0.113.5:3478")
	relays := []string{"203.0.113.5:3478"}
	var links []*testnet.Link
	var sites []*site
	for i := range 2 {
		h := n.Host(fmt.Sprintf("host%d", i))
		links = append(links, h.Join(lan, fmt.Sprintf("10.1.0.%d/24", i+1)))
		h.Join(internet, fmt.Sprintf("203.0.113.%d/24", 20+i))
		sites = append(sites, newSite(t, h, i, relays, fmt.Sprintf("10.1.0.%d", i+1), fmt.Sprintf("203.0.113.%d", 20+i)))
	}
	a, b := sites[0], sites[1]
	introduce(t, a, b)
	a.awaitPath(t, 1, "lan")
	f := startFlow(t, a, b)
	f.moves(t, "in the common network")

	links[1].Set(testnet.Fault{Cut: true})
	a.awaitPath(t, 1, "direct")
	f.moves(t, "straight")

	a.host.Run("nft", "table ip wall { chain out { type filter hook output priority 0; ip daddr 203.0.113.21 drop; }; "+
		"chain in { type filter hook input priority 0; ip saddr 203.0.113.21 drop; }; }")
	a.awaitPath(t, 1, "relay")
	f.moves(t, "through the relay")

	a.host.Run("nft", "delete", "table", "ip", "wall")
	a.awaitPath(t, 1, "direct")
	links[1].Set(testnet.Fault{Delay: 5 * time.Millisecond, Loss: 0.01})
	a.awaitPath(t, 1, "lan")
	await(t, "the delay is measured", patient, func() bool { return a.to(t, 1).RTTMicros >= 10_000 })
	f.moves(t, "in a network that is slow and loses")

	links[1].Set(testnet.Fault{})
	f.stop()
	if x, y := <-f.sums, <-f.sums; x != y {
		t.Error("what arrived is not what was sent")
	}
}

// A host without IPv4 is reached by IPv6, and packets grow to what the way carries: what is left of a router's smaller
// size, or of Ethernet's.
func TestIPv6AndSize(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	s := n.Segment()
	var sites []*site
	for i := range 3 {
		h := n.Host(fmt.Sprintf("host%d", i))
		ip := fmt.Sprintf("2001:db8::%d", i+1)
		if i == 2 {
			other := n.Segment()
			r := n.Host("narrow")
			r.Join(s, "2001:db8::ff/64")
			r.Join(other, "2001:db8:1::ff/64")
			r.Run("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
			r.Run("ip", "link", "set", "eth1", "mtu", "1420")
			ip = "2001:db8:1::3"
			h.Join(other, ip+"/64")
			h.Route("default", "2001:db8:1::ff")
			for _, x := range sites {
				x.host.Route("default", "2001:db8::ff")
			}
		} else {
			h.Join(s, ip+"/64")
		}
		sites = append(sites, newSite(t, h, i, nil, ip))
	}
	size := func(s *site) (mtu int) {
		s.ns.do(t, func() error {
			link, err := netlink.LinkByName(Interface)
			if err == nil {
				mtu = link.Attrs().MTU
			}
			return err
		})
		return mtu
	}
	introduce(t, sites[0], sites[1])
	sites[0].awaitPath(t, 1, "direct")
	if got := size(sites[1]); got < DefaultMTU {
		t.Errorf("the MTU begins at %d", got)
	}
	for _, x := range sites[:2] {
		await(t, "packets as large as Ethernet carries", patient, func() bool { return size(x) == 1420 })
	}
	introduce(t, sites...)
	exchange(t, sites[0], sites[2])
	await(t, "packets as large as the narrow router carries", patient, func() bool { return size(sites[0]) == 1340 })
	exchange(t, sites[2], sites[1])
}
