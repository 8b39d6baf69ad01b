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

	"github.com/musterhq/muster/agent/net/netns"
	"github.com/musterhq/muster/agent/net/overlay/paths"
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
	scout   *scout // nil: sizes of packets are not searched
	end     func()
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

// openKernel takes up the guest's WireGuard device, and creates it if an earlier process has not.
func openKernel(w where) (*kernel, error) {
	there, err := present(w)
	var do func(func(control) error) error
	var end func()
	if err == nil {
		do, end, err = wireGuard.make(w, there)
	}
	if err != nil {
		return nil, err
	}
	k := newKernel(do)
	k.end = end
	if there {
		k.meter.resume(w.read)
	}
	err = netns.Inside(w.ns, func() error {
		if err := bringUp(w.address, w.mtu); err != nil {
			return err
		}
		makeFindable(w)
		return narrow(w)
	})
	if err == nil {
		err = k.listen(w.key, w.port)
	}
	if err != nil {
		k.close()
		return nil, err
	}
	k.explore(w)
	return k, nil
}

// wireGuard creates the kernel's devices. Tests replace it where the kernel has no WireGuard.
var wireGuard = struct {
	there func() bool
	// make creates the device, or takes up the one that is there. It returns how to configure it, and what to do when this
	// process needs it no more: nothing, the kernel's device goes on until it is removed from its namespace.
	make func(w where, there bool) (do func(func(control) error) error, end func(), err error)
}{
	KernelWireGuard,
	func(w where, there bool) (func(func(control) error) error, func(), error) {
		if !there {
			if err := bear(&netlink.Wireguard{LinkAttrs: named(Interface)}, w.ns); err != nil {
				return nil, nil, err
			}
		}
		return func(f func(control) error) error { return withControl(w.ns, f) }, func() {}, nil
	},
}

// explore starts the search for the size of packets. Without it, packets keep the size that every path carries.
func (k *kernel) explore(w where) {
	s := newScout(w.key)
	if err := s.listen(w.ns, w.address.IP); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	s.outer, s.nudge = paths.Room, provoke
	s.resize = func(inner netip.Addr, mtu int) error {
		return netns.Inside(w.ns, func() error { return sizeRoute(w, inner, mtu) })
	}
	s.widen = func(mtu int) error { return netns.Inside(w.ns, func() error { return widen(mtu) }) }
	s.wide = w.mtu
	k.scout = s
	go s.run()
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
		return netlink.LinkDel(link) // the TUN device with which the overlay began
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

// The kernel's WireGuard does not search for paths to its peers. The process therefore uses it only after all ends have
// proven an address to each other (see paths.Board.Agreed).
func (k *kernel) meet(peers map[wgtypes.Key]*agentapi.Peer) error {
	if k.scout == nil {
		return nil
	}
	return k.scout.meet(peers)
}

func (k *kernel) relays([]string, string) error { return nil }

func (k *kernel) paths() map[wgtypes.Key]paths.Path {
	if k.scout == nil {
		return nil
	}
	return k.scout.paths()
}

func (k *kernel) close() {
	if k.scout != nil {
		k.scout.close()
	}
	if k.end != nil {
		k.end()
	}
}

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
				if k.scout != nil {
					at := p.Endpoint.AddrPort()
					k.scout.seen(p.PublicKey, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))
				}
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
