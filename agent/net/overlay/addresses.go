package overlay

import (
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// HostAddresses lists the addresses at which other hosts may reach this one directly, best first: those of the named
// interfaces in the given order, then those of all other interfaces that are up and do not belong to a container
// engine. The interface of the default route precedes the others, and IPv4 precedes IPv6. A host that only has loopback
// addresses returns those.
func HostAddresses(rails ...string) []string {
	outward := defaultInterface()
	var named, first, rest []string
	for _, name := range rails {
		if i, err := net.InterfaceByName(name); err == nil && i.Flags&net.FlagUp != 0 {
			named = append(named, globals(*i)...)
		}
	}
	ifaces, err := net.Interfaces()
	if err != nil {
		return []string{"127.0.0.1"}
	}
	for _, i := range ifaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 || internal(i.Name) || slices.Contains(rails, i.Name) {
			continue
		}
		for _, a := range globals(i) {
			if i.Index == outward {
				first = append(first, a)
			} else {
				rest = append(rest, a)
			}
		}
	}
	all := append(fourFirst(named), fourFirst(append(first, rest...))...)
	if len(all) == 0 {
		return []string{"127.0.0.1"}
	}
	return all
}

// fourFirst sorts IPv4 addresses before IPv6 addresses.
func fourFirst(all []string) []string {
	is6 := func(a string) bool { return strings.Contains(a, ":") }
	return append(slices.DeleteFunc(slices.Clone(all), is6),
		slices.DeleteFunc(all, func(a string) bool { return !is6(a) })...)
}

// internal reports whether an interface leads to containers on this machine.
func internal(name string) bool {
	for _, p := range []string{"docker", "br-", "mst", "veth", "virbr", "cni", "flannel", Interface} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

func globals(i net.Interface) []string {
	addrs, err := i.Addrs()
	if err != nil {
		return nil
	}
	var out []string
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			out = append(out, n.IP.String())
		}
	}
	return out
}

// defaultInterface returns the index of the interface of the IPv4 default route, or 0 if there is none.
func defaultInterface() int {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return 0
	}
	for _, r := range routes {
		if r.Dst == nil || r.Dst.IP.IsUnspecified() {
			return r.LinkIndex
		}
	}
	return 0
}
