package notify

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"syscall"

	"github.com/musterhq/muster/internal/fault"
)

// checkURL refuses addresses that no webhook may have: anything but https with a host, and addresses that are not on
// the internet. A name is only resolved when something is sent: dialPublic decides then. With anyAddress, http and
// every address are accepted.
func checkURL(raw string, anyAddress bool) error {
	bad := func(why string) error { return fault.InvalidField("url", "%s", why) }
	u, err := url.Parse(raw)
	switch {
	case err != nil || len(raw) > 2000 || strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r > '~' }):
		return bad("is not an address such as https://example.com/muster")
	case u.Scheme != "https" && !(anyAddress && u.Scheme == "http"):
		return bad("has to begin with https://")
	case u.User != nil:
		return bad("must not contain a password: the signature proves who sends")
	case u.Fragment != "":
		return bad("must not contain #")
	case u.Hostname() == "":
		return bad("names no host")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !anyAddress && !onInternet(a) {
		return bad("is not an address on the internet")
	}
	if h := strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")); !anyAddress && (h == "localhost" ||
		strings.HasSuffix(h, ".localhost") || strings.HasSuffix(h, ".internal") || strings.HasSuffix(h, ".local")) {
		return bad("is not an address on the internet")
	}
	return nil
}

// errNotOnInternet keeps a request from a private network, from the metadata service of a cloud, and from the
// platform's own machines.
var errNotOnInternet = errors.New("the address is not on the internet")

// dialPublic is the Control function of a dialer. It sees the address that a name was resolved to, so that a name that
// resolves to another address the second time gains nothing.
func dialPublic(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !onInternet(to.Addr()) {
		return errNotOnInternet
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return errNotOnInternet
	}
	for _, o := range own {
		if p, err := netip.ParsePrefix(o.String()); err == nil && p.Addr().Unmap() == to.Addr().Unmap() {
			return errNotOnInternet
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

func onInternet(a netip.Addr) bool {
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
