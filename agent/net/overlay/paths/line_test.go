package paths

import (
	"net/netip"
	"testing"
)

// What leaves the networks a host is in, for an address of the internet, goes over its line.
func TestOutside(t *testing.T) {
	t.Parallel()
	var l Line
	l.Near([]netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8:1::/64")})
	for addr, want := range map[string]bool{
		"203.0.113.9":         false,
		"::ffff:203.0.113.9":  false,
		"2001:db8:1::9":       false, // on a cable of the host's
		"192.168.1.2":         false,
		"10.9.9.9":            false,
		"fd00::1":             false,
		"127.0.0.1":           false,
		"::1":                 false,
		"fe80::1%eth0":        false,
		"224.0.0.1":           false,
		"198.51.100.9":        true,
		"::ffff:198.51.100.9": true,
		"2001:db8:2::9":       true,
		"100.64.1.1":          true, // a provider's own network, or a tunnel through it
	} {
		if got := l.Outside(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	l.Add(netip.MustParseAddr("192.168.1.2"), 5, 7)
	l.Add(netip.MustParseAddr("198.51.100.9"), 100, 200)
	l.Add(netip.Addr{}, 1, 1)
	if got := l.Sum(); got != (Sum{Up: 100, Down: 200, Sent: 106, Received: 208}) {
		t.Errorf("%+v", got)
	}
	if four, six := packets(netip.MustParseAddr("198.51.100.9"), 100, 2), packets(netip.MustParseAddr("2001:db8::1"), 100,
		2); four != 156 || six != 196 {
		t.Errorf("two packets are %d and %d bytes", four, six)
	}
}
