// Package overlay gives a lease its private network. One process per lease runs on the host; it holds a WireGuard
// device whose inner side (ovl0) is in the guest's network namespace and whose UDP side is in the host's.
//
// Invariants:
//   - The private key is generated on the host, is stored in the lease folder readable by root only, and never leaves
//     the host.
//   - At most one overlay process serves a lease folder: it holds the folder's lock until it ends.
//   - Traffic for the overlay's range never leaves by another route: a blackhole route exists in the guest's namespace
//     from before the device is up until the namespace ends, whether or not the process runs.
//   - An agent that restarts finds the running process again: Ensure adopts it if it serves the same epoch and the same
//     namespace. Ensure kills and replaces any other holder of the lock, and one that does not answer within Patience.
//   - A process whose lease folder is gone ends by itself within a second and removes its device. A process that Ensure
//     started and could not wait for does not outlive that call.
//   - Killing the process breaks no TCP connection: key, UDP port, device and routes survive it.
package overlay

import (
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// Interface is the name of the overlay's device in every node.
const Interface = "ovl0"

// DefaultPatience is much longer than a healthy process needs to answer on an overloaded machine. Replacing a process
// that only waits for the CPU would interrupt its traffic, while waiting for one that hangs costs nothing more.
const DefaultPatience = 15 * time.Second

// DefaultMTU fits into every path that carries IPv6's minimum MTU.
const DefaultMTU = 1280

// Config configures the overlay of one lease.
type Config struct {
	Dir     string            // the lease folder (leasefiles.At); must exist
	Ref     agentapi.LeaseRef // the lease and epoch that the overlay serves
	NetNS   string            // the guest's network namespace: /proc/<pid>/ns/net of its main process
	Address string            // this rank's address, as in agentapi.Network
	CIDR    string            // the overlay's range
	MTU     int               // 0 = DefaultMTU
	// Advertise lists IP addresses at which peers may reach this host, best first; empty means the host's own
	// (HostAddresses).
	Advertise []string
	// Interfaces names the host's interfaces that the overlay's traffic should leave by while peers can be reached there,
	// such as the ports of a rack's fast network; empty means whichever is best. A running process keeps those it was
	// started with.
	Interfaces []string
	Port       int      // UDP port to bind; 0 means the port used before, else any free one
	Userspace  bool     // never move to the kernel's WireGuard; a running process keeps what it was started with
	Command    []string // command that starts the process; empty means this executable with "overlay" (see Main)
	// Patience is how long a running process may take to answer before Ensure considers it hung and replaces it; 0 means
	// DefaultPatience.
	Patience time.Duration
}
