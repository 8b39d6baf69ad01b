package firewall

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// separate isolates every port of the bridge, so that it exchanges frames with the bridge only. Docker's and our own
// rules apply between ports only while bridged frames are passed to them (br_netfilter, which any root user can turn
// off), and never to ARP, by which guests could discover each other.
func separate(bridge string) error {
	return eachTogether(bridge, func(port netlink.Link) error {
		if err := netlink.LinkSetIsolated(port, true); !gone(err) {
			return err
		}
		return nil
	})
}

// eachTogether calls f for the bridge's ports that are not isolated. If there is no bridge it does nothing.
func eachTogether(bridge string, f func(netlink.Link) error) error {
	b, err := netlink.LinkByName(bridge)
	if gone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find %s: %w", bridge, err)
	}
	links, err := netlink.LinkList()
	for again := 0; errors.Is(err, netlink.ErrDumpInterrupted) && again < 10; again++ { // containers come and go
		links, err = netlink.LinkList()
	}
	if err != nil {
		return fmt.Errorf("list the ports of %s: %w", bridge, err)
	}
	for _, l := range links {
		if l.Attrs().MasterIndex != b.Attrs().Index {
			continue
		}
		alone, err := isolated(l)
		if err == nil && !alone {
			err = f(l)
		}
		if err != nil {
			return fmt.Errorf("keep the ports of %s from each other: %s: %w", bridge, l.Attrs().Name, err)
		}
	}
	return nil
}

// isolated reports whether a port is isolated. A port that has disappeared counts as isolated.
func isolated(port netlink.Link) (bool, error) {
	p, err := netlink.LinkGetProtinfo(port)
	if err == nil || errors.Is(err, netlink.ErrDumpInterrupted) && p.Isolated {
		return p.Isolated, nil
	}
	now, there := netlink.LinkByIndex(port.Attrs().Index)
	if gone(there) || there == nil && now.Attrs().MasterIndex != port.Attrs().MasterIndex {
		return true, nil
	}
	return false, nil // treated as not isolated: setting it again reports what is wrong
}

// gone reports whether a link disappeared during the call, as those of containers do.
func gone(err error) bool {
	return errors.As(err, &netlink.LinkNotFoundError{}) || errors.Is(err, unix.ENODEV)
}
