package overlay

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// Handle talks to a lease's overlay process. It holds no connection, and outlives the process: after an Ensure that
// started another one, use the new handle (key and, mostly, port are the same).
type Handle struct {
	dir       string
	advertise []string
	rails     []string
	hello     hello
	adopted   bool
}

// PublicKey is the base64 WireGuard public key.
func (h *Handle) PublicKey() string { return h.hello.PublicKey }

// Adopted reports whether Ensure found the process already running.
func (h *Handle) Adopted() bool { return h.adopted }

// PID is the process's.
func (h *Handle) PID() int { return h.hello.PID }

// Endpoints are host:port addresses peers can be told, best first.
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

// SetPeers replaces the peers. Those without a key are skipped: they have not joined. Peers that did not change keep
// their sessions.
func (h *Handle) SetPeers(ctx context.Context, peers []agentapi.Peer) error {
	_, err := h.call(ctx, request{Op: "peers", Peers: peers})
	return err
}

// SetRelays replaces the relays that may carry what goes no other way, host:port each, and the token that opens them.
func (h *Handle) SetRelays(ctx context.Context, names []string, token string) error {
	_, err := h.call(ctx, request{Op: "relays", Relays: &relays{names, token}})
	return err
}

// Status asks the process how its peers are.
func (h *Handle) Status(ctx context.Context) (Status, error) {
	a, err := h.call(ctx, request{Op: "status"})
	if err != nil {
		return Status{}, err
	}
	return *a.Status, nil
}

// Wait returns nil as soon as the process has ended, or ctx's error. Who waits learns of a killed overlay at once and
// can Ensure it again before a job notices.
func (h *Handle) Wait(ctx context.Context) error {
	c, _, err := converse(ctx, h.dir, request{Op: "hold"})
	if err != nil {
		return ctx.Err() // nobody answers: it has ended
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
	Received      bool      `json:"heard"`     // bytes have come since then
	// DeafFromMS and DeafToMS are how long ago the last silence of longer than agentapi.PeerSilenceMS began and ended: the
	// bytes before and after it. Both are 0 while there was none.
	DeafFromMS int64 `json:"deaf_from_ms,omitempty"`
	DeafToMS   int64 `json:"deaf_to_ms,omitempty"`
	// How its packets go: lan, direct, punched, relay; "" when no way answers, or the kernel sends them.
	Path      string `json:"path,omitempty"`
	RTTMicros int64  `json:"rtt_us,omitempty"` // of the last question on that way
	MTU       int    `json:"mtu,omitempty"`    // overlay packet that passes there
}

// Down reports whether the peer has been silent for longer than agentapi.PeerSilenceMS.
func (p PeerStatus) Down() bool { return p.SilentMS > agentapi.PeerSilenceMS }

// Paths are how the peers are reached, for the control plane.
func (s Status) Paths() []agentapi.PeerPath {
	var out []agentapi.PeerPath
	for _, p := range s.Peers {
		if p.Path != "" {
			out = append(out, agentapi.PeerPath{Rank: p.Rank, Path: p.Path, MTU: p.MTU})
		}
	}
	return out
}

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
