package overlay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/agent/netns"
	"github.com/musterhq/muster/agent/overlay/paths"
	"github.com/musterhq/muster/internal/agentapi"
)

// kernel is WireGuard in the kernel. The device is created in the guest's namespace by a request from the host's
// namespace, where its UDP socket stays. It works without this process, which only watches it.
type kernel struct {
	control func(func(control) error) error // configures WireGuard
	udp     int
	gone    chan struct{} // closed when the device was removed
	lost    sync.Once
	meter   meter
}

// control is the part of wgctrl.Client that this package uses.
type control interface {
	ConfigureDevice(name string, cfg wgtypes.Config) error
	Device(name string) (*wgtypes.Device, error)
}

// KernelWireGuard reports whether this kernel can create WireGuard devices. It creates one in a temporary, empty
// namespace, because lists of modules and version numbers are unreliable.
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
	k := newKernel(func(f func(control) error) error { return withControl(w.ns, f) })
	there, err := present(w)
	if there {
		k.meter.resume(w.read)
	}
	if err == nil && !there {
		err = bear(&netlink.Wireguard{LinkAttrs: named(Interface)}, w.ns)
	}
	if err == nil {
		err = netns.Inside(w.ns, func() error { return bringUp(w.address, w.mtu) })
	}
	if err == nil {
		err = k.listen(w.key, w.port)
	}
	if err != nil {
		return nil, err
	}
	return k, nil
}

func newKernel(control func(func(control) error) error) *kernel {
	return &kernel{control: control, gone: make(chan struct{})}
}

// listen sets the device's key and binds UDP to the given port, or to any free port if that one is taken.
func (k *kernel) listen(key wgtypes.Key, port int) error {
	err := k.configure(wgtypes.Config{PrivateKey: &key, ListenPort: &port})
	if errors.Is(err, unix.EADDRINUSE) {
		port = 0
		err = k.configure(wgtypes.Config{PrivateKey: &key, ListenPort: &port})
	}
	if err == nil {
		err = k.device(func(d *wgtypes.Device) { k.udp = d.ListenPort })
	}
	if err != nil {
		return fmt.Errorf("set the overlay's key and UDP port: %w", err)
	}
	return nil
}

// present seals the guest off and looks for a device that an earlier process created.
func present(w where) (there bool, err error) {
	err = netns.Inside(w.ns, func() error {
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
		return netlink.LinkDel(link) // a TUN device from before the kernel had WireGuard
	})
	return there, err
}

// bear creates a device in the namespace ns by a single request from this one. The device exists under its name or not
// at all, so a process that is killed leaves nothing in either namespace. The kernel keeps the UDP socket of WireGuard
// (and VXLAN) devices in the namespace that the request comes from.
func bear(link netlink.Link, ns *os.File) error {
	link.Attrs().Namespace = netlink.NsFd(ns.Fd())
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("make the device %s in the guest: %w", link.Attrs().Name, err)
	}
	return nil
}

func (k *kernel) configure(c wgtypes.Config) error {
	return k.do(func(wg control) error { return wg.ConfigureDevice(Interface, c) })
}

func (k *kernel) device(f func(*wgtypes.Device)) error {
	return k.do(func(wg control) error {
		d, err := wg.Device(Interface)
		if err == nil {
			f(d)
		}
		return err
	})
}

// do sends a request to WireGuard, and notices if the device no longer exists.
func (k *kernel) do(f func(control) error) error {
	err := k.control(f)
	if errors.Is(err, os.ErrNotExist) {
		k.lost.Do(func() { close(k.gone) })
	}
	return err
}

// withControl opens generic netlink inside the namespace, because the device is known by name only there.
func withControl(ns *os.File, f func(control) error) error {
	return netns.Inside(ns, func() error {
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
func (k *kernel) done() <-chan struct{} { return k.gone }

// The kernel's socket only sends WireGuard's packets and finds no paths by itself. The agent uses it only where peers
// reach this host directly (see agent.Config.Userspace).
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
			peers[i].AllowedIPs = []net.IPNet{{
				IP:   c.address.Addr().AsSlice(),
				Mask: net.CIDRMask(c.address.Bits(), c.address.Addr().BitLen()),
			}}
		}
	}
	return k.configure(wgtypes.Config{Peers: peers})
}

// beat turns the keepalive off and on: the kernel sends one immediately when it is turned on.
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
	if err == nil {
		k.meter.take(out)
	}
	return out, err
}

func (k *kernel) near(nets []netip.Prefix) { k.meter.line.Near(nets) }
func (k *kernel) tally() tally             { return k.meter.tally() }
