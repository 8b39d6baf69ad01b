package overlay

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/agent/net/netns"
)

// What only a kernel with WireGuard can prove is not proven here: that its devices are born as VXLAN's are, that they
// take our configuration, and that they carry anything.

// A device that is created from one namespace in another exists there under its name, its UDP socket stays in the
// first, and nothing of the device is ever visible there. VXLAN's home is found as WireGuard's is.
func TestADeviceIsBornInTheGuest(t *testing.T) {
	t.Parallel()
	home, guest := newNamespace(t), newNamespace(t)
	const port = 41999 // in namespaces of our own
	home.do(t, func() error {
		return bear(&netlink.Vxlan{LinkAttrs: named(Interface), VxlanId: 5, Port: port}, guest.file)
	})
	_, cidr, _ := net.ParseCIDR("10.77.0.0/20")
	guest.do(t, func() error { return bringUp(&net.IPNet{IP: net.IPv4(10, 77, 0, 1), Mask: cidr.Mask}, DefaultMTU) })
	links := func(n namespace) (names []string) {
		n.do(t, func() error {
			all, err := netlink.LinkList()
			for _, l := range all {
				if l.Attrs().Name == Interface || l.Type() == "vxlan" {
					names = append(names, l.Attrs().Name)
				}
			}
			return err
		})
		return names
	}
	if h, g := links(home), links(guest); len(h) != 0 || len(g) != 1 || g[0] != Interface {
		t.Errorf("at home %v, in the guest %v", h, g)
	}
	free := func(n namespace) bool {
		return netns.Inside(n.file, func() error {
			c, err := net.ListenPacket("udp4", "0.0.0.0:41999")
			if err == nil {
				c.Close()
			}
			return err
		}) == nil
	}
	if free(home) || !free(guest) {
		t.Errorf("the UDP port is free at home: %v, in the guest: %v", free(home), free(guest))
	}
	if err := takeDown(guest.file); err != nil || len(links(guest)) != 0 || !free(home) {
		t.Errorf("taken down: %v, left %v", err, links(guest))
	}
	if err := takeDown(guest.file); err != nil {
		t.Error("taken down again:", err)
	}
	guest.do(t, func() error { return bear(&netlink.Bridge{LinkAttrs: named(Interface)}, guest.file) })
	if err := netns.Inside(home.file, func() error {
		return bear(&netlink.Bridge{LinkAttrs: named(Interface)},
			guest.file)
	}); err == nil {
		t.Error("a second device of the name was made")
	}
}

// fakeWireGuard answers for a device and records the requests.
type fakeWireGuard struct {
	requests []wgtypes.Config
	device   wgtypes.Device
	fail     func(wgtypes.Config) error
}

func (f *fakeWireGuard) ConfigureDevice(name string, c wgtypes.Config) error {
	f.requests = append(f.requests, c)
	if f.fail != nil {
		if err := f.fail(c); err != nil {
			return err
		}
	}
	if c.ListenPort != nil {
		if f.device.ListenPort = *c.ListenPort; *c.ListenPort == 0 {
			f.device.ListenPort = 50123
		}
	}
	return nil
}

func (f *fakeWireGuard) Device(name string) (*wgtypes.Device, error) {
	if f.fail != nil {
		if err := f.fail(wgtypes.Config{}); err != nil {
			return nil, err
		}
	}
	return &f.device, nil
}

func fakeKernel() (*kernel, *fakeWireGuard) {
	f := &fakeWireGuard{}
	return newKernel(func(do func(control) error) error { return do(f) }), f
}

func newKey(t *testing.T) wgtypes.Key {
	t.Helper()
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// The kernel's device listens at the port it had, or at another when that is taken, and says at which.
func TestTheKernelListens(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	k, f := fakeKernel()
	if err := k.listen(key, 41000); err != nil || k.port() != 41000 || *f.requests[0].PrivateKey != key {
		t.Errorf("port %d, %v", k.port(), err)
	}
	f.fail = func(c wgtypes.Config) error {
		if c.ListenPort != nil && *c.ListenPort != 0 {
			return os.NewSyscallError("sendmsg", unix.EADDRINUSE)
		}
		return nil
	}
	if err := k.listen(key, 41000); err != nil || k.port() != 50123 {
		t.Errorf("with the port taken: port %d, %v", k.port(), err)
	}
}

// Peers are set in the kernel one by one, and settings that must not change are left out.
func TestTheKernelsPeers(t *testing.T) {
	t.Parallel()
	k, f := fakeKernel()
	a, b, c := newKey(t).PublicKey(), newKey(t).PublicKey(), newKey(t).PublicKey()
	err := k.apply([]peerChange{
		{key: a, remove: true},
		{
			key:       b,
			endpoint:  netip.MustParseAddrPort("203.0.113.9:41000"),
			address:   netip.MustParsePrefix("10.77.0.3/32"),
			keepalive: true,
		},
		{key: c, address: netip.MustParsePrefix("10.77.0.4/32")},
	})
	every := keepalive
	want := []wgtypes.PeerConfig{
		{PublicKey: a, Remove: true},
		{
			PublicKey:                   b,
			Endpoint:                    &net.UDPAddr{IP: net.IPv4(203, 0, 113, 9).To4(), Port: 41000},
			PersistentKeepaliveInterval: &every,
			ReplaceAllowedIPs:           true,
			AllowedIPs:                  []net.IPNet{{IP: net.IPv4(10, 77, 0, 3).To4(), Mask: net.CIDRMask(32, 32)}},
		},
		{
			PublicKey:         c,
			ReplaceAllowedIPs: true,
			AllowedIPs:        []net.IPNet{{IP: net.IPv4(10, 77, 0, 4).To4(), Mask: net.CIDRMask(32, 32)}},
		},
	}
	if err != nil || len(f.requests) != 1 || f.requests[0].ReplacePeers {
		t.Fatalf("%v %+v", err, f.requests)
	}
	if diff := cmp.Diff(want, f.requests[0].Peers); diff != "" {
		t.Error(diff)
	}
	f.requests = nil
	if err := k.beat([]wgtypes.Key{b}); err != nil || len(f.requests) != 2 {
		t.Fatalf("%v %+v", err, f.requests)
	}
	for i, every := range []time.Duration{0, keepalive} { // off, and on again: that sends one
		if p := f.requests[i].Peers[0]; p.PublicKey != b || !p.UpdateOnly || *p.PersistentKeepaliveInterval != every ||
			f.requests[i].PrivateKey != nil {
			t.Errorf("step %d: %+v", i, p)
		}
	}
	at := time.Unix(1_700_000_000, 0)
	f.device.Peers = []wgtypes.Peer{
		{
			PublicKey:         b,
			ReceiveBytes:      64,
			TransmitBytes:     32,
			LastHandshakeTime: at,
			Endpoint:          &net.UDPAddr{IP: net.IPv4(203, 0, 113, 9), Port: 41000},
		},
		{PublicKey: c, LastHandshakeTime: time.Unix(0, 0)}, // none yet
	}
	got, err := k.counters()
	if want := map[wgtypes.Key]counter{
		b: {rx: 64, tx: 32, handshake: at, endpoint: "203.0.113.9:41000"},
		c: {},
	}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A device that was removed by another program is noticed, so that the process ends and another one creates a new
// device. Other errors do not count as removal.
func TestTheKernelsDeviceIsGone(t *testing.T) {
	t.Parallel()
	k, f := fakeKernel()
	gone := func() bool {
		select {
		case <-k.done():
			return true
		default:
			return false
		}
	}
	f.fail = func(wgtypes.Config) error { return unix.EBUSY }
	if _, err := k.counters(); err == nil || gone() {
		t.Errorf("%v, gone %v", err, gone())
	}
	f.fail = func(wgtypes.Config) error { return os.ErrNotExist }
	for range 2 {
		if _, err := k.counters(); !errors.Is(err, os.ErrNotExist) || !gone() {
			t.Errorf("%v, gone %v", err, gone())
		}
	}
}
