package overlay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/net/netns"
)

// identify returns the identity of the network namespace that f refers to.
func identify(f *os.File) (nsID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nsID{}, os.NewSyscallError("fstat", err)
	}
	return nsID{Dev: uint64(st.Dev), Inode: st.Ino}, nil
}

// sealOff adds the blackhole route: without it, traffic for other ranks would leave by the default route of eth0
// whenever the device is missing. It runs inside the guest's namespace, before anything else.
func sealOff(cidr *net.IPNet) error {
	err := netlink.RouteReplace(&netlink.Route{Dst: cidr, Type: unix.RTN_BLACKHOLE, Priority: 4096})
	if err != nil {
		return fmt.Errorf("set the blackhole route: %w", err)
	}
	return nil
}

// takeDown removes the device from the guest's namespace. The blackhole route stays.
func takeDown(ns *os.File) error {
	return netns.Inside(ns, func() error {
		link, err := netlink.LinkByName(Interface)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil
		}
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil {
			return fmt.Errorf("remove %s: %w", Interface, err)
		}
		return nil
	})
}

// bringUp sets the device's address and MTU and brings it up. It runs inside the guest's namespace and may run again on
// a device that is already up.
func bringUp(address *net.IPNet, mtu int) error {
	link, err := netlink.LinkByName(Interface)
	if err != nil {
		return fmt.Errorf("find %s: %w", Interface, err)
	}
	if err := netlink.LinkSetMTU(link, mtu); err != nil {
		return fmt.Errorf("set %s's MTU to %d: %w", Interface, mtu, err)
	}
	if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: address}); err != nil {
		return fmt.Errorf("give %s its address: %w", Interface, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", Interface, err)
	}
	return nil
}

// narrow gives all packets of a kernel device the size that every path carries, until larger ones have proven to pass:
// sizeRoute then sets a peer's. The device itself sends larger ones, for the scout.
func narrow(w where) error {
	link, err := netlink.LinkByName(Interface)
	if err != nil {
		return fmt.Errorf("find %s: %w", Interface, err)
	}
	old, err := netlink.RouteList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list the routes of %s: %w", Interface, err)
	}
	for i := range old { // an earlier process has set them; what they say is verified again
		if r := &old[i]; r.Dst != nil && r.Dst.String() != w.cidr.String() {
			if err := netlink.RouteDel(r); err != nil {
				return fmt.Errorf("remove a route of %s: %w", Interface, err)
			}
		}
	}
	return replaceRoute(link, w, w.cidr, w.mtu)
}

// sizeRoute sets the size of the packets to one peer.
func sizeRoute(w where, inner netip.Addr, mtu int) error {
	link, err := netlink.LinkByName(Interface)
	if err != nil {
		return fmt.Errorf("find %s: %w", Interface, err)
	}
	return replaceRoute(link, w, &net.IPNet{IP: inner.AsSlice(), Mask: net.CIDRMask(32, 32)}, mtu)
}

func replaceRoute(link netlink.Link, w where, to *net.IPNet, mtu int) error {
	err := netlink.RouteReplace(&netlink.Route{
		LinkIndex: link.Attrs().Index,
		Dst:       to,
		Src:       w.address.IP,
		Scope:     netlink.SCOPE_LINK,
		Protocol:  unix.RTPROT_KERNEL,
		MTU:       mtu,
	})
	if err != nil {
		return fmt.Errorf("set the size of packets to %s to %d: %w", to, mtu, err)
	}
	return nil
}

// widen lets the device send packets of a size.
func widen(mtu int) error {
	link, err := netlink.LinkByName(Interface)
	if err != nil {
		return fmt.Errorf("find %s: %w", Interface, err)
	}
	if err := netlink.LinkSetMTU(link, mtu); err != nil {
		return fmt.Errorf("set %s's MTU to %d: %w", Interface, mtu, err)
	}
	return nil
}
