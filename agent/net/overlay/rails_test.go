package overlay

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/musterhq/muster/internal/testing/testnet"
)

// sent is how many bytes a port of a host has sent.
func sent(t *testing.T, h *testnet.Host, port string) (bytes uint64) {
	t.Helper()
	if err := h.Inside(func() error {
		link, err := netlink.LinkByName(port)
		if err != nil {
			return err
		}
		if link.Attrs().Statistics == nil {
			return errors.New("the kernel does not count")
		}
		bytes = link.Attrs().Statistics.TxBytes
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return bytes
}

// ship sends 4 MiB from one rank to another over the overlay.
func ship(t *testing.T, from, to *site) {
	t.Helper()
	const size = 4 << 20
	l := to.ns.listen(t, address(to.n)+":0")
	defer l.Close()
	got := make(chan int64, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- -1
			return
		}
		n, _ := io.Copy(io.Discard, c)
		fmt.Fprint(c, "whole")
		c.Close()
		got <- n
	}()
	c := from.dial(t, l.Addr().String())
	if err := c.SetDeadline(time.Now().Add(patient)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(c); err != nil || string(answer) != "whole" {
		t.Fatalf("%q, %v", answer, err)
	}
	if n := <-got; n != size {
		t.Fatalf("%d bytes arrive", n)
	}
}

// Two hosts share two networks. Traffic between ranks uses the port that the operators have named, although the other
// port's addresses come first; it uses the other port while the named one is cut, and the named one again afterwards.
func TestTrafficTakesTheNamedRail(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	plain, rail := n.Segment(), n.Segment()
	var sites []*site
	var cables []*testnet.Link
	for i := range 2 {
		h := n.Host(fmt.Sprintf("rack-%d", i))
		h.Join(plain, fmt.Sprintf("192.168.7.%d/24", 10+i))
		cables = append(cables, h.Join(rail, fmt.Sprintf("172.20.0.%d/24", 10+i)))
		s := newSite(t, h, i, nil, fmt.Sprintf("192.168.7.%d", 10+i), fmt.Sprintf("172.20.0.%d", 10+i))
		if err := Stop(t.Context(), s.cfg.Dir); err != nil {
			t.Fatal(err)
		}
		s.cfg.Interfaces = []string{"eth1"}
		if err := h.Inside(func() (err error) { s.h, err = Ensure(t.Context(), s.cfg); return err }); err != nil {
			t.Fatal(err)
		}
		sites = append(sites, s)
	}
	introduce(t, sites...)
	by := func(network string) {
		t.Helper()
		await(t, "both ranks reach each other by "+network, patient, func() bool {
			return !slices.ContainsFunc(sites, func(s *site) bool {
				return !strings.HasPrefix(s.to(t, 1-s.n).Endpoint,
					network)
			})
		})
	}
	// The path of each packet is chosen again all the time, and on a slow machine a rail may look silent for a moment: it
	// is enough that all traffic uses the named one once.
	check := func(network, used, spared string) {
		t.Helper()
		host, said := sites[0].host, ""
		for range 20 {
			by(network)
			u, o := sent(t, host, used), sent(t, host, spared)
			ship(t, sites[0], sites[1])
			if u, o = sent(t, host, used)-u, sent(t, host, spared)-o; u >= 4<<20 && o < 1<<20 {
				return
			}
			said = fmt.Sprintf("%d bytes went by %s and %d by %s", u, used, o, spared)
		}
		t.Error(said)
	}
	check("172.20.0.", "eth1", "eth0")
	cables[1].Set(testnet.Fault{Cut: true})
	check("192.168.7.", "eth0", "eth1")
	cables[1].Set(testnet.Fault{})
	check("172.20.0.", "eth1", "eth0")
}

// A host announces the addresses of the ports that its operator has named before all others.
func TestAddressesOfNamedPortsComeFirst(t *testing.T) {
	t.Parallel()
	n := testnet.New(t)
	h := n.Host("rack")
	h.Join(n.Segment(), "192.168.7.10/24", "fd07::10/64")
	h.Join(n.Segment(), "172.20.0.10/24")
	h.Join(n.Segment(), "172.21.0.10/24", "fd21::10/64")
	h.Route("default", "192.168.7.1")
	for _, test := range []struct {
		rails []string
		want  []string
	}{
		{nil, []string{"192.168.7.10", "172.20.0.10", "172.21.0.10", "fd07::10", "fd21::10"}},
		{[]string{"eth2", "eth1"}, []string{"172.21.0.10", "172.20.0.10", "fd21::10", "192.168.7.10", "fd07::10"}},
		{[]string{"eth1", "eth9"}, []string{"172.20.0.10", "192.168.7.10", "172.21.0.10", "fd07::10", "fd21::10"}},
	} {
		var got []string
		if err := h.Inside(func() error { got = HostAddresses(test.rails...); return nil }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%v named: %v, want %v", test.rails, got, test.want)
		}
	}
}
