// Package firewall keeps renters' containers away from the host, its neighbours and other renters, by one nftables
// table per agent that matches only the agent's own bridge.
//
// Invariants:
//   - What is not allowed is refused: a container whose egress was not set reaches nothing.
//   - No service on the host answers a container, at any address including the bridge's gateway; private, link-local
//     and metadata addresses and the host's own networks are unreachable; mail cannot be sent.
//   - Containers on the bridge do not reach each other there, nor see each other's frames, including ARP: its ports are
//     isolated. Nothing outside can open connections to them.
//   - The number of connections that a lease has open, and its bandwidth in each direction, are limited on the host's
//     own line to the internet. The overlay does not pass through here.
//   - A change is one nftables transaction, so rules are in force at every moment.
//   - Docker's own rules stay as they are. A packet must pass both: an accept here does not overrule a drop there.
//
// The package runs the nft program instead of using netlink (google/nftables): the source shows the rules as an
// operator sees them with `nft list ruleset`, a load is atomic, and the same program reports what a text means to this
// kernel, which is how tables are compared (see listing.go).
package firewall

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/musterhq/muster/internal/fault"
)

// Egress is what a lease may reach outside the overlay.
type Egress string

const (
	EgressOff     Egress = "off"
	EgressLimited Egress = "limited" // web and DNS, few connections, little bandwidth
	EgressFull    Egress = "full"    // everything public except mail, many connections
)

// Config configures one agent's firewall.
type Config struct {
	Host8  string                // 8 hex digits that distinguish this agent from others on the machine
	Leases map[netip.Addr]Egress // by the guest's address on the bridge; others are off
	Caps   Caps                  // the operator's limits for every lease
}

// Caps limit what each lease moves over the host's line to the internet, in megabits per second from 1 to MaxMbps; 0 is
// no limit. Egress limited has limits of its own (LimitedUpMbps, LimitedDownMbps); the lower limit applies. Packets
// above a limit are dropped, which makes TCP send less. Connections is how many connections a lease may have open at
// once, from 0 to FullConnections; 0 means FullConnections, or LimitedConnections for egress limited.
type Caps struct {
	UpMbps, DownMbps, Connections int
}

// MaxMbps is the greatest limit, because nftables computes with nanoseconds times bytes in 64 bits.
const MaxMbps = 100_000

// These are the limits of egress limited in megabits per second, and of open connections.
const (
	LimitedUpMbps      = 20
	LimitedDownMbps    = 100
	LimitedConnections = 256
	FullConnections    = 4096
)

// Traffic is what a lease did since its egress was set.
type Traffic struct {
	// Opened counts attempted connections to the outside, allowed or above a limit; packets before the first answer count
	// individually.
	Opened  uint64
	Refused uint64 // packets to forbidden places: hosts, private networks, metadata, mail, ports outside the egress
	Up      uint64 // bytes sent to the outside, including dropped ones
	Down    uint64 // bytes received
}

// Bridge returns the name of the agent's bridge: "mst" and its 8 hex digits.
func (c Config) Bridge() string { return "mst" + c.Host8 }

// Table returns the name of the agent's nftables table.
func (c Config) Table() string { return "muster_" + c.Host8 }

// Flows returns the traffic of each lease.
func Flows(ctx context.Context, host8 string) (map[netip.Addr]Traffic, error) {
	l, err := list(ctx, Config{Host8: host8}.Table())
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the firewall cannot be read: %v", err)
	}
	return l.flows(), nil
}

// Remove deletes the table. It is no error if there is none.
func Remove(ctx context.Context, host8 string) error {
	t := Config{Host8: host8}.Table()
	// Adding the table first makes deleting a missing one succeed.
	if err := load(ctx, fmt.Sprintf("add table inet %s\ndelete table inet %s\n", t, t)); err != nil {
		return fault.New(fault.Unavailable, "the firewall cannot be removed: %v", err)
	}
	return nil
}

// validate restricts everything that becomes part of the rules' text to its allowed characters.
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

// Check returns an error if a value is out of range.
func (c Caps) Check() error {
	if c.UpMbps < 0 || c.UpMbps > MaxMbps || c.DownMbps < 0 || c.DownMbps > MaxMbps {
		return fault.New(fault.Invalid, "a lease is held to 0 (no bound) to %d Mbit/s", MaxMbps)
	}
	if c.Connections < 0 || c.Connections > FullConnections {
		return fault.New(fault.Invalid, "a lease has 0 (the usual) to %d connections", FullConnections)
	}
	return nil
}
