package overlay

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/agent/netns"
	"github.com/musterhq/muster/agent/overlay/paths"
	"github.com/musterhq/muster/internal/agentapi"
)

// kernel is WireGuard in the kernel. The device is made in the host's namespace, where its UDP socket stays for ever,
// and moved into the guest's. It works on without this process, which only watches it.
type kernel struct {
	ns  *os.File
	udp int
}

// KernelWireGuard reports whether this kernel can make WireGuard devices. It makes one, in an empty namespace of a
// moment: module lists and version numbers do not tell.
func KernelWireGuard() bool {
	found := false
	return netns.Empty(func() error {
		found = netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: named("probe")}) == nil
		return nil
	}) == nil && found
}

func named(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

func openKernel(w where) (tunnel, error) {
	k := &kernel{ns: w.ns}
	there, err := k.present(w)
	if err == nil && !there {
		err = k.create(w)
	}
	if err == nil {
		err = netns.Inside(w.ns, func() error { return bringUp(w.address, w.mtu) })
	}
	if err == nil {
		err = k.configure(wgtypes.Config{PrivateKey: &w.key, ListenPort: &w.port})
	}
	if errors.Is(err, unix.EADDRINUSE) {
		zero := 0
		err = k.configure(wgtypes.Config{PrivateKey: &w.key, ListenPort: &zero})
	}
	if err != nil {
		return nil, err
	}
	return k, k.device(func(d *wgtypes.Device) { k.udp = d.ListenPort })
}

// present seals the guest off and looks for a device a former process made.
func (k *kernel) present(w where) (there bool, err error) {
	err = netns.Inside(k.ns, func() error {
		if err := sealOff(w.cidr); err != nil {
			return err
		}
		link, err := netlink.LinkByName(Interface)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil
		}
		if err != nil {
			return err
		}
		if link.Type() == "wireguard" {
			there = true
			return nil
		}
		return netlink.LinkDel(link) // a TUN from before the kernel had WireGuard
	})
	return there, err
}

// create makes the device here and moves it. Its name is unique to this process until it is ovl0 over there.
func (k *kernel) create(w where) error {
	link := &netlink.Wireguard{LinkAttrs: named(fmt.Sprintf("mwg%d", os.Getpid()))}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("make the WireGuard device: %w", err)
	}
	err := netlink.LinkSetNsFd(link, int(k.ns.Fd()))
	if err != nil {
		netlink.LinkDel(link)
		return fmt.Errorf("move the WireGuard device into the guest: %w", err)
	}
	return netns.Inside(k.ns, func() error {
		moved, err := netlink.LinkByName(link.Name)
		if err != nil {
			return err
		}
		return netlink.LinkSetName(moved, Interface)
	})
}

// configure and device speak generic netlink from inside the namespace: that is where the device is known by name.
func (k *kernel) configure(c wgtypes.Config) error {
	return k.client(func(wg *wgctrl.Client) error { return wg.ConfigureDevice(Interface, c) })
}

func (k *kernel) device(f func(*wgtypes.Device)) error {
	return k.client(func(wg *wgctrl.Client) error {
		d, err := wg.Device(Interface)
		if err == nil {
			f(d)
		}
		return err
	})
}

func (k *kernel) client(f func(*wgctrl.Client) error) error {
	return netns.Inside(k.ns, func() error {
		wg, err := wgctrl.New()
		if err != nil {
			return err
		}
		defer wg.Close()
		return f(wg)
	})
}

func (k *kernel) backend() string       { return "kernel" }
func (k *kernel) port() int             { return k.udp }
func (k *kernel) done() <-chan struct{} { return nil } // the device needs nobody

// The kernel's socket sends WireGuard's packets and nothing else: it finds no ways of its own. The agent takes it only
// where peers reach this host without help (see agent.Config.Userspace).
func (k *kernel) meet(map[wgtypes.Key]*agentapi.Peer) error { return nil }
func (k *kernel) relays([]string, string) error             { return nil }
func (k *kernel) paths() map[wgtypes.Key]paths.Path         { return nil }

func (k *kernel) apply(changes []peerChange) error {
	every := keepalive
	peers := make([]wgtypes.PeerConfig, len(changes))
	for i, c := range changes {
		peers[i] = wgtypes.PeerConfig{PublicKey: c.key, Remove: c.remove}
		if c.remove {
			continue
		}
		if c.keepalive {
			peers[i].PersistentKeepaliveInterval = &every
		}
		if c.endpoint.IsValid() {
			peers[i].Endpoint = net.UDPAddrFromAddrPort(c.endpoint)
		}
		if c.address.IsValid() {
			peers[i].ReplaceAllowedIPs = true
			peers[i].AllowedIPs = []net.IPNet{{IP: c.address.Addr().AsSlice(), Mask: net.CIDRMask(c.address.Bits(), c.address.Addr().BitLen())}}
		}
	}
	return k.configure(wgtypes.Config{Peers: peers})
}

// beat turns the keepalive off and on: the kernel sends one at once when it is turned on.
func (k *kernel) beat(keys []wgtypes.Key) error {
	for _, every := range []time.Duration{0, keepalive} {
		peers := make([]wgtypes.PeerConfig, len(keys))
		for i, key := range keys {
			peers[i] = wgtypes.PeerConfig{PublicKey: key, UpdateOnly: true, PersistentKeepaliveInterval: &every}
		}
		if err := k.configure(wgtypes.Config{Peers: peers}); err != nil {
			return err
		}
	}
	return nil
}

func (k *kernel) counters() (map[wgtypes.Key]counter, error) {
	out := map[wgtypes.Key]counter{}
	err := k.device(func(d *wgtypes.Device) {
		for _, p := range d.Peers {
			c := counter{rx: p.ReceiveBytes, tx: p.TransmitBytes}
			if p.LastHandshakeTime.After(time.Unix(0, 0)) {
				c.handshake = p.LastHandshakeTime
			}
			if p.Endpoint != nil {
				c.endpoint = p.Endpoint.String()
			}
			out[p.PublicKey] = c
		}
	})
	return out, err
}
