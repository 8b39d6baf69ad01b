// Package guest is how the agent talks to the injected binary (cmd/muster-guest) of a node: where it is mounted, how
// it is started as guest and as workload's init, and the requests it answers.
//
// The guest container runs trusted code only, so what it says is believed. The workload's init is trusted until it
// releases the renter's command; the guest takes no word from the workload after that.
package guest

import (
	"context"
	"strconv"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// Where things are inside containers.
const (
	Binary  = "/run/muster/guest" // the injected binary, a read-only file mount in guest and workload
	NodeDir = "/run/muster/node"  // Layout.Node: read-only in the workload, writable in the guest
	HoldDir = "/run/muster/hold"  // Layout.Guest: in the guest only
)

// HoldArgs is the guest container's command.
func HoldArgs(ref agentapi.LeaseRef) []string {
	return []string{Binary, "hold", ref.Lease, strconv.Itoa(ref.Epoch)}
}

// InitArgs is the workload's entry point: the injected binary as PID 1, which resolves command in the image, waits at
// the barrier and runs it. command is the image's entry point and arguments already joined with the renter's.
func InitArgs(ref agentapi.LeaseRef, command []string) []string {
	return append([]string{Binary, "init", ref.Lease, strconv.Itoa(ref.Epoch), "--"}, command...)
}

// Exit codes of the init before the barrier was released. What the renter's command exits with can be the same
// number, so they count only while Workload.State is not Started.
const (
	ExitBroken     = 125 // the platform's own trouble: the guest did not answer
	ExitNotRunable = 126
	ExitNotFound   = 127
)

// State is how far a workload has come.
type State string

const (
	StateNone      State = ""           // its init has not reported
	StateAtBarrier State = "at_barrier" // the command was found; it waits
	StateStarted   State = "started"    // the command runs or has run
	StateRefused   State = "refused"    // never started: see Reason
)

// Workload is what the init reported. The guest keeps it in its folder, so it outlives the agent.
type Workload struct {
	agentapi.LeaseRef
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"` // agentapi.ReasonCommandNotFound, ReasonRuntimeFailed
	Detail string `json:"detail,omitempty"`
	AtMS   int64  `json:"at_ms"` // unix ms by the host's clock
}

// Client asks one guest.
type Client struct{ socket string }

// Dial returns a client of the guest whose socket is at path (leasefiles.Layout.HoldSocket). Nothing is connected yet.
func Dial(path string) *Client { return &Client{path} }

// Ping answers once the guest is up and serves ref.
func (c *Client) Ping(ctx context.Context) (agentapi.LeaseRef, error) {
	return agentapi.LeaseRef{}, fault.New(fault.Unavailable, "not built yet")
}

// Workload returns the init's report, waiting while its state is still after; pass State("-") not to wait.
func (c *Client) Workload(ctx context.Context, after State) (Workload, error) {
	return Workload{}, fault.New(fault.Unavailable, "not built yet")
}

// PreflightRequest asks a guest to measure the overlay together with all other ranks.
type PreflightRequest struct {
	agentapi.LeaseRef
	Rank      int      `json:"rank"`
	Addresses []string `json:"addresses"` // overlay address of every rank, by rank
	Bytes     int64    `json:"bytes"`     // S of the all-reduce; 0 = 16 MiB
	JoinMS    int64    `json:"join_ms"`   // how long the others may take to answer; 0 = 60 s
	TotalMS   int64    `json:"total_ms"`  // everything; 0 = 120 s
	MinGbps   float64  `json:"min_gbps"`  // below it the preflight fails
}

// PreflightOf is the request for a lease.
func PreflightOf(spec agentapi.LeaseSpec) PreflightRequest {
	r := PreflightRequest{LeaseRef: spec.LeaseRef, Rank: spec.Rank, Addresses: make([]string, spec.Nodes), MinGbps: spec.Network.MinGbps}
	r.Addresses[spec.Rank] = spec.Network.Address
	for _, p := range spec.Network.Peers {
		r.Addresses[p.Rank] = p.Address
	}
	return r
}

// Preflight runs it and returns the figures. A preflight that failed is not an error: OK is false and Detail says why.
func (c *Client) Preflight(ctx context.Context, r PreflightRequest) (agentapi.Preflight, error) {
	return agentapi.Preflight{}, fault.New(fault.Unavailable, "not built yet")
}
