package overlay

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"

	"github.com/vishvananda/netlink"
)

// makeFindable calls preferAddress. The overlay works without it, for programs that take the interface's name or the
// node's: an error is only logged.
func makeFindable(w where) {
	if err := preferAddress(w.address, w.cidr); err != nil {
		fmt.Fprintln(os.Stderr, "programs that look for their own address find another:", err)
	}
}

// preferAddress makes the node's address on the overlay the one that programs find when they look for their own: the
// source of the default route (vLLM, Ray and Dask connect a UDP socket to an address of the internet and look at its
// name), and the first one that the kernel lists (hostname -I). Other ranks reach no other address of the node.
//
// What leaves the node by the default route keeps the source that Docker and the agent's firewall know: the node's own
// namespace translates it. It runs inside the guest's namespace, and may run again.
func preferAddress(own, overlay *net.IPNet) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	// The kernel removes routes whose source is the address of no device. On lo it stays while the overlay's device is
	// replaced.
	if err := alias(lo, own, netlink.SCOPE_HOST); err != nil {
		return err
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list the routes: %w", err)
	}
	for i := range routes {
		r := &routes[i]
		if r.Gw == nil || r.Dst != nil && r.Dst.String() != "0.0.0.0/0" || own.IP.Equal(r.Src) {
			continue
		}
		out, err := netlink.LinkByIndex(r.LinkIndex)
		if err != nil {
			return fmt.Errorf("find the device of the default route: %w", err)
		}
		if err := translate(out, overlay); err != nil {
			return err
		}
		r.Src = own.IP
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("set the source of the default route: %w", err)
		}
	}
	return listFirst(own)
}

// alias gives a device an address without a network.
func alias(link netlink.Link, address *net.IPNet, scope netlink.Scope) error {
	err := netlink.AddrReplace(link, &netlink.Addr{
		IPNet: &net.IPNet{IP: address.IP, Mask: net.CIDRMask(32, 32)},
		Scope: int(scope),
	})
	if err != nil {
		return fmt.Errorf("give %s the node's address: %w", link.Attrs().Name, err)
	}
	return nil
}

// listFirst makes the address the first that the kernel lists, loopback's apart. Devices are listed by their numbers,
// so that eth0 may come before the overlay's: then eth0 gets the address, too. The kernel lists an address of a
// narrower scope before the others of a device, and chooses it as the source of no packet.
func listFirst(own *net.IPNet) error {
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list the addresses: %w", err)
	}
	for _, a := range addresses {
		if a.IP.IsLoopback() {
			continue
		}
		link, err := netlink.LinkByIndex(a.LinkIndex)
		if err != nil {
			return fmt.Errorf("find a device: %w", err)
		}
		if link.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		if a.IP.Equal(own.IP) {
			return nil
		}
		return alias(link, own, netlink.SCOPE_LINK)
	}
	return nil
}

// translate gives packets that leave by the device with the overlay's address the device's own.
func translate(out netlink.Link, overlay *net.IPNet) error {
	addresses, err := netlink.AddrList(out, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list the addresses of %s: %w", out.Attrs().Name, err)
	}
	for _, a := range addresses {
		if overlay.Contains(a.IP) {
			continue
		}
		rules := fmt.Sprintf(`table ip muster
delete table ip muster
table ip muster {
	chain out {
		type nat hook postrouting priority srcnat; policy accept;
		oifname %q ip saddr %s snat to %s
	}
}
`, out.Attrs().Name, overlay, a.IP)
		cmd := exec.Command("nft", "-f", "-") // in this thread's namespace
		cmd.Stdin = bytes.NewReader([]byte(rules))
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("translate the node's address: %w: %s", err, bytes.TrimSpace(text))
		}
		return nil
	}
	return fmt.Errorf("%s has no address", out.Attrs().Name)
}
