package overlay

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/musterhq/muster/agent/net/overlay/paths"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// newFastSite is a site whose kernel has WireGuard.
func newFastSite(t *testing.T, h *testnet.Host, n int, relays []string, advertise ...string) *site {
	t.Helper()
	return startSite(t, h, n, relays, func(c *Config) {
		c.Userspace, c.Command, c.Advertise = false, []string{"/proc/self/exe", fast}, advertise
	})
}

func (s *site) backend(t *testing.T) string {
	t.Helper()
	st, err := s.h.Status(t.Context())
	if err != nil {
		return err.Error()
	}
	return st.Backend
}

func (s *site) awaitBackend(t *testing.T, want string) {
	t.Helper()
	await(t, fmt.Sprintf("rank %d uses WireGuard of the %s", s.n, want), patient,
		func() bool { return s.backend(t) == want })
}

// routeMTU is the size that a rank's programs send to another's address.
func (s *site) routeMTU(t *testing.T, to int) (mtu int) {
	t.Helper()
	s.ns.do(t, func() error {
		link, err := netlink.LinkByName(Interface)
		if err != nil {
			return err
		}
		routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		best := -1
		for _, r := range routes {
			if ones, _ := r.Dst.Mask.Size(); r.Dst.Contains(net.ParseIP(address(to))) && ones > best {
				best, mtu = ones, r.MTU
			}
		}
		return nil
	})
	return mtu
}

func (s *site) awaitSize(t *testing.T, to, want int) {
	t.Helper()
	deadline := time.Now().Add(patient)
	for s.routeMTU(t, to) != want || s.to(t, to).MTU != want {
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(folder(s.cfg.Dir) + "/log")
			t.Fatalf("rank %d sends packets of %d bytes to rank %d, want %d: %+v\n%s", s.n, s.routeMTU(t, to), to, want,
				s.to(t, to), log)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Hosts of a LAN with private addresses move to the kernel's WireGuard once they have proven to each other that they
// are reached. Connections live on. Packets are as large as the frames of the network carry: those that a host only
// believes in get lost, and smaller ones are taken.
func TestALANUsesTheKernel(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	lan := n.Segment()
	wide := n.Segment()
	wide.SetMTU(9000)
	var sites []*site
	for i := range 3 {
		h := n.Host(fmt.Sprintf("rack-%d", i))
		h.Join(lan, fmt.Sprintf("10.9.0.%d/24", 10+i))
		advertise := []string{fmt.Sprintf("10.9.0.%d", 10+i)}
		if i < 2 {
			h.Join(wide, fmt.Sprintf("10.8.0.%d/24", 10+i))
			advertise = []string{fmt.Sprintf("10.8.0.%d", 10+i), advertise[0]}
		}
		h.Run("ip", "link", "set", "eth0", "mtu", "9000") // the network behind it carries 1500
		s := newFastSite(t, h, i, nil, advertise...)
		s.cfg.Interfaces = []string{"eth1"}
		sites = append(sites, s)
	}
	introduce(t, sites...)
	f := startFlow(t, sites[0], sites[1])
	f.moves(t, "at first")
	for _, s := range sites {
		s.awaitBackend(t, "kernel")
	}
	f.moves(t, "in the kernel")
	for _, s := range sites[:2] {
		if p := s.to(t, 1-s.n); p.Path != "lan" || !strings.HasPrefix(p.Endpoint, "10.") {
			t.Errorf("rank %d: %+v", s.n, p)
		}
	}
	for _, s := range sites {
		for _, o := range sites {
			if s == o {
				continue
			}
			if strings.HasPrefix(s.to(t, o.n).Endpoint, "10.8.") {
				s.awaitSize(t, o.n, 8920)
			} else {
				s.awaitSize(t, o.n, 1420)
			}
		}
	}
	exchange(t, sites[0], sites[2])
	if before := sites[0].moved(t); before.Sent == 0 || before.Up != 0 {
		t.Errorf("counted %+v", before)
	}

	// A killed process continues where the former one was.
	b := sites[1]
	b.awaitBackend(t, "kernel")
	if err := syscall.Kill(b.h.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the process is gone", patient, func() bool { pid, err := holder(b.h.dir); return err == nil && pid == 0 })
	if err := b.host.Inside(func() (err error) { b.h, err = Ensure(t.Context(), b.cfg); return err }); err != nil {
		t.Fatal(err)
	}
	if got := b.backend(t); got != "kernel" {
		t.Errorf("after a kill: %s", got)
	}
	f.moves(t, "after a kill")
	f.stop()
	if x, y := <-f.sums, <-f.sums; x != y {
		t.Error("what arrived is not what was sent")
	}
}

// A router with smaller frames, which would have packets sent in fragments, is found by what it reports.
func TestTheKernelsPacketsFitThroughRouters(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	one, two := n.Segment(), n.Segment()
	r := n.Router("narrow", one, "10.1.0.1/24", two, "10.2.0.1/24", testnet.None)
	r.Run("ip", "link", "set", "eth1", "mtu", "1412")
	var hosts []*testnet.Host
	for i, s := range []*testnet.Segment{one, two} {
		h := n.Host(fmt.Sprintf("host-%d", i))
		h.Join(s, fmt.Sprintf("10.%d.0.10/24", i+1))
		h.Route("default", fmt.Sprintf("10.%d.0.1", i+1))
		if i == 1 {
			h.Run("ip", "link", "set", "eth0", "mtu", "1412")
		}
		hosts = append(hosts, h)
	}
	room := func() (room int) {
		err := hosts[0].Inside(func() error {
			to := netip.MustParseAddrPort("10.2.0.10:9")
			provoke(to, paths.Room(to)+paths.Tunnelling)
			room = paths.Room(to)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return room
	}
	if got := room(); got != 1440 && got != 1352 {
		t.Errorf("room for %d bytes", got)
	}
	await(t, "the router has reported its size", patient, func() bool { return room() == 1352 })

	hosts[0].Run("ip", "route", "flush", "cache")
	var sites []*site
	for i, h := range hosts {
		sites = append(sites, newFastSite(t, h, i, nil, fmt.Sprintf("10.%d.0.10", i+1)))
	}
	introduce(t, sites...)
	for i, s := range sites {
		s.awaitBackend(t, "kernel")
		s.awaitSize(t, 1-i, 1352) // with the headers of IP, UDP and WireGuard 1412
	}
	exchange(t, sites[0], sites[1])
}

// A rank that is reached through its router, or whose host has no WireGuard in its kernel, keeps all in userspace; one
// that joins later brings them back to it.
func TestOneThatNeedsHelpKeepsAllInUserspace(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	internet, lan, home := n.Segment(), n.Segment(), n.Segment()
	rh := n.Host("relay")
	rh.Join(internet, "203.0.113.5/24")
	startRelay(t, rh, "203.0.113.5:3478")
	relays := []string{"203.0.113.5:3478"}
	n.Router("one", lan, "192.168.1.1/24", internet, "203.0.113.101/24", testnet.Preserving)
	n.Router("two", home, "192.168.2.1/24", internet, "203.0.113.102/24", testnet.Preserving)
	host := func(name string, s *testnet.Segment, ip, gw string) *testnet.Host {
		h := n.Host(name)
		h.Join(s, ip+"/24")
		h.Route("default", gw)
		return h
	}
	a := newFastSite(t, host("a", lan, "192.168.1.10", "192.168.1.1"), 0, relays, "192.168.1.10")
	b := newFastSite(t, host("b", lan, "192.168.1.11", "192.168.1.1"), 1, relays, "192.168.1.11")
	c := newFastSite(t, host("c", home, "192.168.2.10", "192.168.2.1"), 2, relays, "192.168.2.10")
	d := newSite(t, host("d", lan, "192.168.1.13", "192.168.1.1"), 3, relays, "192.168.1.13")
	introduce(t, a, b)
	for _, s := range []*site{a, b} {
		s.awaitBackend(t, "kernel")
	}
	f := startFlow(t, a, b)
	f.moves(t, "in the kernel")

	introduce(t, a, b, c)
	for _, s := range []*site{a, b} {
		s.awaitBackend(t, "userspace")
		s.awaitPath(t, 2, "punched")
	}
	exchange(t, a, c)
	f.moves(t, "with a rank behind another router")

	introduce(t, a, b)
	for _, s := range []*site{a, b} {
		s.awaitBackend(t, "kernel")
	}
	introduce(t, a, b, d)
	for _, s := range []*site{a, b} {
		s.awaitPath(t, 3, "lan")
	}
	exchange(t, a, d)
	await(t, "the measurement need not wait", patient, func() bool {
		st, err := a.h.Status(t.Context())
		return err == nil && !st.Moving && st.Backend == "userspace"
	})
	f.moves(t, "with a host without WireGuard in its kernel")
	f.stop()
	if x, y := <-f.sums, <-f.sums; x != y {
		t.Error("what arrived is not what was sent")
	}
}

// In the kernel no other path is found: when one of its peers falls silent an end looks for paths again.
func TestASilentPeerIsLookedFor(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	lan, internet := n.Segment(), n.Segment()
	rh := n.Host("relay")
	rh.Join(internet, "203.0.113.5/24")
	startRelay(t, rh, "203.0.113.5:3478")
	relays := []string{"203.0.113.5:3478"}
	var cables []*testnet.Link
	var sites []*site
	for i := range 2 {
		h := n.Host(fmt.Sprintf("host-%d", i))
		cables = append(cables, h.Join(lan, fmt.Sprintf("10.1.0.%d/24", i+1)))
		h.Join(internet, fmt.Sprintf("203.0.113.%d/24", 20+i))
		sites = append(sites, newFastSite(t, h, i, relays, fmt.Sprintf("10.1.0.%d", i+1)))
	}
	introduce(t, sites...)
	for _, s := range sites {
		s.awaitBackend(t, "kernel")
	}
	f := startFlow(t, sites[0], sites[1])
	f.moves(t, "in the LAN")
	cables[1].Set(testnet.Fault{Cut: true})
	for i, s := range sites {
		s.awaitBackend(t, "userspace")
		await(t, "another path is found", patient, func() bool {
			path := s.to(t, 1-i).Path
			return path == "relay" || path == "punched"
		})
	}
	f.moves(t, "by another path")
	cables[1].Set(testnet.Fault{})
	for _, s := range sites {
		s.awaitBackend(t, "kernel")
	}
	f.moves(t, "in the LAN again")
	f.stop()
	if x, y := <-f.sums, <-f.sums; x != y {
		t.Error("what arrived is not what was sent")
	}
}

// A kernel that refuses the device leaves the overlay in userspace, where it works.
func TestARefusedDeviceLeavesUserspace(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	lan := n.Segment()
	var sites []*site
	for i := range 2 {
		h := n.Host("host-" + strconv.Itoa(i))
		h.Join(lan, fmt.Sprintf("10.1.0.%d/24", i+1))
		sites = append(sites, startSite(t, h, i, nil, func(c *Config) {
			c.Userspace, c.Command = false, []string{"/proc/self/exe", refusing}
			c.Advertise = []string{fmt.Sprintf("10.1.0.%d", i+1)}
		}))
	}
	introduce(t, sites...)
	await(t, "a device is refused", patient, func() bool { // the first end to fail reports that it stays in userspace
		for _, s := range sites {
			log, err := os.ReadFile(folder(s.cfg.Dir) + "/log")
			if err == nil && strings.Contains(string(log), "the kernel's WireGuard is not used") {
				return true
			}
		}
		return false
	})
	for i, s := range sites {
		s.awaitBackend(t, "userspace")
		s.awaitPath(t, 1-i, "lan")
	}
	exchange(t, sites[0], sites[1])
}
