// Package overlay gives a lease its private network: one process per lease on the host, which holds a WireGuard
// device whose clear side (ovl0) is in the guest's network namespace and whose UDP side is in the host's.
//
// What always holds:
//   - The private key is made on the host, lies in the lease folder readable by root only, and never leaves it.
//   - At most one overlay process serves a lease folder: it holds the folder's lock for as long as it lives.
//   - Traffic for the overlay's range never leaves by another way: a blackhole route stands in the guest's namespace
//     from before the device is up until the namespace ends, whether or not the process lives.
//   - An agent that restarts finds the running process again (Ensure adopts it) if it serves the same epoch and the
//     same namespace; anything else that holds the lock is killed and replaced, one that does not answer after
//     Patience.
//   - A process whose lease folder is gone ends by itself within a second, and its device with it. One that Ensure
//     started and could not wait for does not outlive that call.
//   - Killing the process loses no TCP connection: key, UDP port, device and routes survive it.
package overlay

import (
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// Interface is the overlay's device in every node.
const Interface = "ovl0"

// DefaultPatience is much longer than a process that works takes to answer on a machine that is overloaded: to replace
// one that only waits for its turn would interrupt what it carries, and to bear with one that hangs costs what it
// carries nothing more.
const DefaultPatience = 15 * time.Second

// DefaultMTU fits into every path that carries IPv6's minimum.
const DefaultMTU = 1280

// Config is one lease's overlay.
type Config struct {
	Dir     string            // the lease folder (leasefiles.At); must exist
	Ref     agentapi.LeaseRef // whose overlay
	NetNS   string            // the guest's network namespace: /proc/<pid>/ns/net of its main process
	Address string            // this rank's, as in agentapi.Network
	CIDR    string            // the overlay's range
	MTU     int               // 0 = DefaultMTU
	// IP addresses peers may reach this host at, best first; empty = the host's own (HostAddresses)
	Advertise []string
	// Interfaces of the host that the overlay's traffic should leave by while peers can be reached there, such as the
	// ports of a rack's fast network; empty: by whichever is best. A process that runs keeps to those it was started with.
	Interfaces []string
	Port       int      // UDP port to bind; 0 = the one used before, else any free one
	Userspace  bool     // never use the kernel's WireGuard
	Command    []string // how to start the process; empty = this executable with "overlay" (see Main)
	// Patience is how long a process that runs may take to answer before it counts as hung and is replaced; 0 =
	// DefaultPatience.
	Patience time.Duration
}
