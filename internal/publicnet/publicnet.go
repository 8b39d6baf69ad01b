// Package publicnet keeps requests that users direct on the internet: to a webhook or a bucket of theirs, and away from
// private networks, from the metadata service of a cloud, and from the machine that sends them.
package publicnet

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
)

// ErrOutside is the error of a connection to an address that is not on the internet.
var ErrOutside = errors.New("the address is not on the internet")

// Host reports whether a host that a URL names may be on the internet. A name is not resolved: Control decides when a
// connection is made.
func Host(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return Contains(a)
	}
	h := strings.ToLower(strings.TrimSuffix(host, "."))
	return h != "localhost" && !strings.HasSuffix(h, ".localhost") && !strings.HasSuffix(h, ".internal") &&
		!strings.HasSuffix(h, ".local")
}

// Control is the Control function of a dialer. It sees the address that a name was resolved to, so that a name that
// resolves to another address the second time gains nothing.
func Control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !Contains(to.Addr()) {
		return ErrOutside
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return ErrOutside
	}
	for _, o := range own {
		if p, err := netip.ParsePrefix(o.String()); err == nil && p.Addr().Unmap() == to.Addr().Unmap() {
			return ErrOutside
		}
	}
	return nil
}

// special are ranges that net/netip does not classify: carriers' NAT, a cloud's metadata service, protocols,
// documentation, benchmarks, reserved addresses, and IPv6 ranges that contain IPv4 addresses.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("168.63.129.16/32"),
	netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("2001::/23"),
	netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("3fff::/20"),
}

var unicast6 = netip.MustParsePrefix("2000::/3")

// Contains reports whether an address is on the internet.
func Contains(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.Is6() && !unicast6.Contains(a) {
		return false
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return true
}
