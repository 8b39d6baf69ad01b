package overlay

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// How near an address is, best first.
const (
	onRail    = iota // it is reached by an interface that the operator has named
	inSubnet         // it is in a network that this host is in
	elsewhere        // a router is between, or it cannot be reached now
)

// nearness tells how near addresses are by the routes of this process's namespace, asked anew each time: links go down
// and come up.
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
