package firewall

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// onLink lists the public IPv4 networks that the host is in: to a container the host's neighbours there would otherwise
// be public, although they are not meant to be. The host's own addresses count even if the provider gives them a /32
// mask.
func onLink() ([]netip.Prefix, error) {
	var out []netip.Prefix
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if a.IPNet != nil {
			ones, _ := a.IPNet.Mask.Size()
			out = add(out, a.IP, ones)
		}
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		if r.Scope == unix.RT_SCOPE_LINK && r.Dst != nil {
			ones, _ := r.Dst.Mask.Size()
			out = add(out, r.Dst.IP, ones)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out), nil
}

func add(to []netip.Prefix, ip []byte, ones int) []netip.Prefix {
	a, ok := netip.AddrFromSlice(ip)
	if !ok || ones == 0 || !public(a.Unmap()) {
		return to
	}
	return append(to, netip.PrefixFrom(a.Unmap(), ones).Masked())
}

func public(a netip.Addr) bool {
	for _, d := range denied {
		if netip.MustParsePrefix(d).Contains(a) {
			return false
		}
	}
	return true
}

// OnLine reports whether packets to an address use the host's line to the internet: the address is not private and,
// if it is of IPv4, not in a network that the host is in. If those networks cannot be listed, only private addresses do
// not use the line.
func OnLine(a netip.Addr) bool {
	a = a.Unmap()
	if !a.Is4() {
		return !slices.ContainsFunc(strings.Split(privateV6, ", "), func(p string) bool {
			return netip.MustParsePrefix(p).Contains(a)
		})
	}
	near, err := onLink()
	if err != nil {
		near = nil
	}
	return public(a) && !slices.ContainsFunc(near, func(p netip.Prefix) bool { return p.Contains(a) })
}
