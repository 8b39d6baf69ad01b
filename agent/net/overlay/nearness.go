package overlay

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// These values rank how near an address is, best first.
const (
	onRail    = iota // reached through an interface that the operator named
	inSubnet         // in one of this host's own networks
	elsewhere        // behind a router, or currently unreachable
)

// nearness ranks addresses by the routes of this process's namespace. It reads the routes each time, because links go
// down and come up.
func nearness(rails string) func(netip.Addr) int {
	return func(a netip.Addr) int {
		routes, err := netlink.RouteGet(net.IP(a.Unmap().AsSlice()))
		if err != nil || len(routes) == 0 {
			return elsewhere
		}
		r := routes[0]
		if rails != "" {
			if i, err := net.InterfaceByIndex(r.LinkIndex); err == nil && slices.Contains(strings.Split(rails, ","), i.Name) {
				return onRail
			}
		}
		if r.Gw == nil && r.Via == nil {
			return inSubnet
		}
		return elsewhere
	}
}
