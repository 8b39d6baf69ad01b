// Package overlay gives a lease its private network: one process per lease on the host, which holds a WireGuard
// device whose clear side (ovl0) is in the guest's network namespace and whose UDP side is in the host's.
//
// What always holds:
//   - The private key is made on the host, lies in the lease folder readable by root only, and never leaves it.
//   - At most one overlay process serves a lease folder: it holds the folder's lock for as long as it lives.
//   - Traffic for the overlay's range never leaves by another way: a blackhole route stands in the guest's namespace
//     from before the device is up until the namespace ends, whether or not the process lives.
//   - An agent that restarts finds the running process again (Ensure adopts it) if it serves the same epoch and the
//     same namespace; anything else that holds the lock is killed and replaced.
//   - Killing the process loses no TCP connection: key, UDP port, device and routes survive it.
package overlay

import (
	"context"
	"time"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// Interface is the overlay's device in every node.
const Interface = "ovl0"

// DefaultMTU fits into every path that carries IPv6's minimum.
const DefaultMTU = 1280

// Config is one lease's overlay.
type Config struct {
	Dir       string            // the lease folder (leasefiles.At); must exist
	Ref       agentapi.LeaseRef // whose overlay
	NetNS     string            // the guest's network namespace: /proc/<pid>/ns/net of its main process
	Address   string            // this rank's, as in agentapi.Network
	CIDR      string            // the overlay's range
	MTU       int               // 0 = DefaultMTU
	Advertise []string          // IP addresses peers may reach this host at, best first; empty = the host's own (HostAddresses)
	Port      int               // UDP port to bind; 0 = the one used before, else any free one
	Userspace bool              // never use the kernel's WireGuard
	Command   []string          // how to start the process; empty = this executable with "overlay" (see Main)
}

// Handle talks to a lease's running overlay process.
type Handle struct {
	socket string
	hello  hello
}

// Ensure makes the overlay of cfg stand and returns once its device is up: it adopts a running process that serves
// the same epoch and namespace, or else kills what holds the folder's lock and starts a new one. It may be called
// again at any time. Errors are Unavailable faults whose message says what failed.
func Ensure(ctx context.Context, cfg Config) (*Handle, error) {
	return nil, fault.New(fault.Unavailable, "the overlay is not built yet")
}

// Stop ends the overlay process of a lease folder and waits until its lock is free. Nothing running is no error. The
// device goes with the guest's namespace. The key stays; wiping the folder is the caller's.
func Stop(ctx context.Context, dir string) error { return nil }

// PublicKey is the base64 WireGuard public key.
func (h *Handle) PublicKey() string { return h.hello.PublicKey }

// Endpoints are host:port addresses peers can be told, best first.
func (h *Handle) Endpoints() []string { return h.hello.Endpoints }

// Adopted reports whether Ensure found the process already running.
func (h *Handle) Adopted() bool { return h.hello.adopted }

// SetPeers replaces the peers. Those without a key are skipped: they have not joined. Peers that did not change keep
// their sessions.
func (h *Handle) SetPeers(ctx context.Context, peers []agentapi.Peer) error {
	return fault.New(fault.Unavailable, "the overlay is not built yet")
}

// Status asks the process how its peers are.
func (h *Handle) Status(ctx context.Context) (Status, error) {
	return Status{}, fault.New(fault.Unavailable, "the overlay is not built yet")
}

// Status is what the process knows of itself.
type Status struct {
	Ref     agentapi.LeaseRef `json:"ref"`
	Backend string            `json:"backend"` // userspace, kernel
	PID     int               `json:"pid"`
	Port    int               `json:"port"`
	Peers   []PeerStatus      `json:"peers"` // by rank
}

// PeerStatus is one peer as this host's overlay sees it.
type PeerStatus struct {
	Rank          int       `json:"rank"`
	Key           string    `json:"key"`
	Endpoint      string    `json:"endpoint"` // where it was last heard, or is tried
	RxBytes       int64     `json:"rx_bytes"`
	TxBytes       int64     `json:"tx_bytes"`
	LastHandshake time.Time `json:"last_handshake,omitzero"`
	SilentMS      int64     `json:"silent_ms"` // since bytes last came, or since the peer was set
	Heard         bool      `json:"heard"`     // bytes have come since the process started or the peer was set
}

// Down reports whether the peer has been silent for longer than agentapi.PeerSilenceMS.
func (p PeerStatus) Down() bool { return p.SilentMS > agentapi.PeerSilenceMS }

// PeersDown lists the ranks that are down.
func (s Status) PeersDown() []int {
	var ranks []int
	for _, p := range s.Peers {
		if p.Down() {
			ranks = append(ranks, p.Rank)
		}
	}
	return ranks
}

// Main is the overlay process: `muster-agent overlay <lease folder>`. It reads the folder's overlay.json, which Ensure
// wrote, and serves until killed. It returns the exit code.
func Main(args []string) int { return 1 }

type hello struct {
	PublicKey string   `json:"public_key"`
	Endpoints []string `json:"endpoints"`
	adopted   bool
}

var _ = leasefiles.At
