// Package firewall keeps renters' containers away from the host, its neighbours and other renters: one nftables
// table per agent that matches only the agent's own bridge.
//
// What always holds:
//   - What is not allowed is refused: a container whose egress was not set reaches nothing.
//   - Nothing on the host answers a container, by whichever address it is asked (the bridge's gateway included);
//     private, link-local and metadata addresses and the host's own networks are out of reach; mail cannot be sent.
//   - Containers on the bridge do not reach each other there, nor see each other's frames, ARP included: its ports are
//     isolated. Nobody outside opens connections to them.
//   - A lease has at most so many connections open at once, and moves at most so much each way per second, over the
//     host's own line to the internet. The overlay does not go through here.
//   - A change is one nftables transaction: never a moment without rules.
//   - Docker's own rules stay as they are. A packet must pass both: an accept here does not overrule a drop there.
//
// It drives the nft program and not netlink (google/nftables): the rules stand in the source as an operator will see
// them with `nft list ruleset`, a load is atomic, and the same program tells what a text means to this kernel, which
// is how Check compares (see listing.go).
package firewall

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/musterhq/muster/internal/fault"
)

// Egress is what a lease may reach beyond the overlay.
type Egress string

const (
	EgressOff     Egress = "off"
	EgressLimited Egress = "limited" // web and DNS, few connections, little bandwidth
	EgressFull    Egress = "full"    // anything public but mail, many connections
)

// Config is one agent's firewall.
type Config struct {
	Host8  string                // 8 hex digits that tell this agent from others on the machine
	Leases map[netip.Addr]Egress // by the guest's address on the bridge; one that is missing is off
	Caps   Caps                  // the operator's, of every lease
}

// Caps bound what each lease moves over the host's line to the internet, in megabits per second from 1 to MaxMbps; 0 is
// no bound. Egress limited has bounds of its own (LimitedUpMbps, LimitedDownMbps), and the lower ones count. What is
// over is dropped, which makes TCP send less. Connections is how many a lease may have open at once, 0 to
// FullConnections: 0 is FullConnections, and of egress limited LimitedConnections.
type Caps struct {
	UpMbps, DownMbps, Connections int
}

// MaxMbps is the greatest bound: nftables counts in nanoseconds times bytes, in 64 bits.
const MaxMbps = 100_000

// The bounds of egress limited, megabits per second, and of connections open at once.
const (
	LimitedUpMbps      = 20
	LimitedDownMbps    = 100
	LimitedConnections = 256
	FullConnections    = 4096
)

// Traffic is what a lease did since its egress was set.
type Traffic struct {
	// connections tried to the outside, allowed or over a bound; packets until the first answer count singly
	Opened  uint64
	Refused uint64 // packets to where nobody may: hosts, private networks, metadata, mail, ports that its egress has not
	Up      uint64 // bytes sent to the outside, with what was dropped
	Down    uint64 // bytes received
}

// Bridge is the agent's bridge, "mst" and its 8 hex digits.
func (c Config) Bridge() string { return "mst" + c.Host8 }

// Table is the agent's nftables table.
func (c Config) Table() string { return "muster_" + c.Host8 }

// Flows is what each lease did.
func Flows(ctx context.Context, host8 string) (map[netip.Addr]Traffic, error) {
	l, err := list(ctx, Config{Host8: host8}.Table())
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the firewall cannot be read: %v", err)
	}
	return l.flows(), nil
}

// Remove deletes the table. No table is no error.
func Remove(ctx context.Context, host8 string) error {
	t := Config{Host8: host8}.Table()
	// Adding first makes deleting what is not there no error.
	if err := load(ctx, fmt.Sprintf("add table inet %s\ndelete table inet %s\n", t, t)); err != nil {
		return fault.New(fault.Unavailable, "the firewall cannot be removed: %v", err)
	}
	return nil
}

// validate keeps everything that goes into the rules' text to the letters it may have.
func (c Config) validate() error {
	if len(c.Host8) != 8 {
		return fault.New(fault.Invalid, "a firewall is named by 8 hex digits, not %q", c.Host8)
	}
	for _, r := range c.Host8 {
		if (r < '0' || r > '9') && (r < 'a' || r > 'f') {
			return fault.New(fault.Invalid, "a firewall is named by 8 hex digits, not %q", c.Host8)
		}
	}
	if err := c.Caps.Check(); err != nil {
		return err
	}
	for a, e := range c.Leases {
		if !a.Is4() {
			return fault.New(fault.Invalid, "%s is no address on the bridge", a)
		}
		if e != EgressOff && e != EgressLimited && e != EgressFull {
			return fault.New(fault.Invalid, "egress %q is none of off, limited, full", e)
		}
	}
	return nil
}

// Check refuses what is out of range.
func (c Caps) Check() error {
	if c.UpMbps < 0 || c.UpMbps > MaxMbps || c.DownMbps < 0 || c.DownMbps > MaxMbps {
		return fault.New(fault.Invalid, "a lease is held to 0 (no bound) to %d Mbit/s", MaxMbps)
	}
	if c.Connections < 0 || c.Connections > FullConnections {
		return fault.New(fault.Invalid, "a lease has 0 (the usual) to %d connections", FullConnections)
	}
	return nil
}
