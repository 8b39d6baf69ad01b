package overlay

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// Handle controls a lease's overlay process. It holds no connection and outlives the process: after an Ensure that
// started another process, use the new handle. The key, and usually the port, stay the same.
type Handle struct {
	dir       string
	advertise []string
	rails     []string
	hello     hello
	adopted   bool
}

// PublicKey returns the base64 WireGuard public key.
func (h *Handle) PublicKey() string { return h.hello.PublicKey }

// Adopted reports whether Ensure found the process already running.
func (h *Handle) Adopted() bool { return h.adopted }

// PID returns the process id.
func (h *Handle) PID() int { return h.hello.PID }

// Endpoints lists the host:port addresses to announce to peers, best first.
func (h *Handle) Endpoints() []string {
	hosts := h.advertise
	if len(hosts) == 0 {
		hosts = HostAddresses(h.rails...)
	}
	out := make([]string, len(hosts))
	for i, a := range hosts {
		out[i] = net.JoinHostPort(a, strconv.Itoa(h.hello.BoundPort))
	}
	return out
}

// SetPeers replaces the peers. Peers without a key have not joined yet and are skipped. Peers that did not change keep
// their sessions.
func (h *Handle) SetPeers(ctx context.Context, peers []agentapi.Peer) error {
	_, err := h.call(ctx, request{Op: "peers", Peers: peers})
	return err
}

// SetRelays replaces the relays (host:port each) that may carry traffic when no direct path works, and the token that
// opens them.
func (h *Handle) SetRelays(ctx context.Context, names []string, token string) error {
	_, err := h.call(ctx, request{Op: "relays", Relays: &relays{names, token}})
	return err
}

// Status returns the process's view of its peers.
func (h *Handle) Status(ctx context.Context) (Status, error) {
	a, err := h.call(ctx, request{Op: "status"})
	if err != nil {
		return Status{}, err
	}
	return *a.Status, nil
}

// Wait returns nil as soon as the process has ended, or ctx's error. A caller that waits can call Ensure again before a
// job notices that its overlay was killed.
func (h *Handle) Wait(ctx context.Context) error {
	c, _, err := converse(ctx, h.dir, request{Op: "hold"})
	if err != nil {
		return ctx.Err() // no answer: the process has ended
	}
	return waitGone(ctx, c)
}

func (h *Handle) call(ctx context.Context, q request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	a, err := call(ctx, h.dir, q)
	if err != nil {
		return a, fault.New(fault.Unavailable, "the overlay process: %v", err)
	}
	return a, nil
}

// Status is the state of an overlay process.
type Status struct {
	Ref     agentapi.LeaseRef `json:"ref"`
	Backend string            `json:"backend"` // "userspace" or "kernel"
	PID     int               `json:"pid"`
	Port    int               `json:"port"`
	Peers   []PeerStatus      `json:"peers"` // ordered by rank
	// Moving: the overlay may move to the kernel's WireGuard within a few seconds. What is measured now is not what the
	// workload will have.
	Moving bool `json:"moving,omitempty"`
}

// PeerStatus is one peer as this host's overlay sees it.
type PeerStatus struct {
	Rank          int       `json:"rank"`
	Key           string    `json:"key"`
	Endpoint      string    `json:"endpoint"` // the address that last sent something, or that is being tried
	RxBytes       int64     `json:"rx_bytes"`
	TxBytes       int64     `json:"tx_bytes"`
	LastHandshake time.Time `json:"last_handshake,omitzero"`
	SilentMS      int64     `json:"silent_ms"` // time since bytes last arrived, or since the peer was set
	Received      bool      `json:"heard"`     // whether bytes have arrived since then
	// DeafFromMS and DeafToMS are the age of the beginning and end of the last silence that was longer than
	// agentapi.PeerSilenceMS, measured at the bytes that preceded and ended it. Both are 0 if there was none.
	DeafFromMS int64 `json:"deaf_from_ms,omitempty"`
	DeafToMS   int64 `json:"deaf_to_ms,omitempty"`
	// Path is how packets reach the peer: lan, direct, punched or relay; "" if no path answers, or if the kernel sends the
	// packets.
	Path      string `json:"path,omitempty"`
	RTTMicros int64  `json:"rtt_us,omitempty"` // round-trip time of the last probe of that path
	MTU       int    `json:"mtu,omitempty"`    // size of the largest overlay packet that passes
}

// Down reports whether the peer has been silent for longer than agentapi.PeerSilenceMS.
func (p PeerStatus) Down() bool { return p.SilentMS > agentapi.PeerSilenceMS }

// Paths returns how the peers are reached, in the form that the control plane expects.
func (s Status) Paths() []agentapi.PeerPath {
	var out []agentapi.PeerPath
	for _, p := range s.Peers {
		if p.Path != "" {
			out = append(out, agentapi.PeerPath{Rank: p.Rank, Path: p.Path, MTU: p.MTU})
		}
	}
	return out
}

// PeersDown lists the ranks whose peers are down.
func (s Status) PeersDown() []int {
	var ranks []int
	for _, p := range s.Peers {
		if p.Down() {
			ranks = append(ranks, p.Rank)
		}
	}
	return ranks
}
