package hostinfo

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/musterhq/muster/internal/agentapi"
)

// readGID chooses the address by which programs use a RoCE port: of RoCE v2, which routers pass, and of the port's own
// network port rather than a VLAN on it. IPv4 comes first, then IPv6 that others can reach, then link-local addresses;
// between equals, the lowest index. The device of a port without its own network port takes any.
func readGID(h *agentapi.HCA, at string) {
	gids, err := os.ReadDir(filepath.Join(at, "gids"))
	if err != nil {
		return
	}
	best, lowest := 0, 0
	for _, e := range gids {
		i, err := strconv.Atoi(e.Name())
		if err != nil || factOf(filepath.Join(at, "gid_attrs/types", e.Name())) != "RoCE v2" {
			continue
		}
		netdev := factOf(filepath.Join(at, "gid_attrs/ndevs", e.Name()))
		if h.Netdev != "" && netdev != h.Netdev {
			continue
		}
		gid := factOf(filepath.Join(at, "gids", e.Name()))
		worth := gidWorth(gid)
		if worth > best || worth == best && worth > 0 && i < lowest {
			best, lowest = worth, i
			h.GIDIndex, h.GID = agentapi.Known(i), gid
		}
	}
}

// gidWorth ranks addresses by how far they reach; 0 cannot be used.
func gidWorth(gid string) int {
	a, err := netip.ParseAddr(gid)
	switch {
	case err != nil || a.Unmap().IsUnspecified():
		return 0
	case a.Is4In6():
		return 3
	case a.IsLinkLocalUnicast():
		return 1
	}
	return 2
}
