package cluster

import (
	"encoding/json"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Action is something the renter may ask of a cluster now.
type Action string

const (
	ActionRelease Action = "release"
	ActionRestart Action = "restart"
)

// Cluster is the REST API's cluster.
type Cluster struct {
	ID     id.Cluster `json:"id"`
	Org    id.Org     `json:"-"`
	Name   string     `json:"name"`
	State  State      `json:"state"`
	Reason Reason     `json:"reason"`
	// Detail says for people what happened, what was charged, and what to do.
	Detail  string      `json:"detail"`
	Actions []Action    `json:"actions"`
	Spec    market.Spec `json:"spec"` // values of env are masked
	// ImageDigest is what the image's name meant when the first rank asked its registry: every rank, and every start,
	// runs that.
	ImageDigest string `json:"image_digest" doc:"what the image was pinned to; empty before a host has asked the registry"`
	// PricePerHour binds; PricePerSecond is display.
	PricePerHour   money.Micro `json:"price_per_hour"`
	PricePerSecond money.Nano  `json:"price_per_second"`
	Currency       string      `json:"currency"`
	CreatedAt      time.Time   `json:"created_at"`
	RunningAt      *time.Time  `json:"running_at"`
	EndedAt        *time.Time  `json:"ended_at"`
	// RunUntil is until when the cluster is paid for at the moment; it is extended while money lasts.
	RunUntil *time.Time `json:"run_until"`
	Epoch    int        `json:"epoch" doc:"number of the present start"`
	Nodes    []Node     `json:"nodes"`
	Network  Network    `json:"network"`
	// CostSoFar and BillableSeconds take time of a running cluster that is not proven yet as if it were; once settled
	// they are what was billed.
	CostSoFar       money.Nano `json:"cost_so_far"`
	BillableSeconds Seconds    `json:"billable_seconds"`
	// Replacing is set while ranks that are lost for good wait for another host.
	Replacing *Replacing `json:"replacing,omitempty"`
	// Doubt is set while a rank is in doubt and seconds do not count. It is nil in lists.
	Doubt *Doubt `json:"doubt,omitempty" doc:"why seconds do not count at this moment; left out in lists and while nothing is in doubt"`
	// Billing says whether seconds count at this moment.
	Billing bool `json:"billing"`
}

// Seconds is a duration as JSON number with milliseconds as decimals.
type Seconds time.Duration

func (s Seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(time.Duration(s).Milliseconds()) / 1000)
}

func (s *Seconds) UnmarshalJSON(b []byte) error {
	var f float64
	err := json.Unmarshal(b, &f)
	*s = Seconds(time.Duration(f*1000+0.5) * time.Millisecond)
	return err
}

// Node is one rank of a cluster.
type Node struct {
	Rank     int               `json:"rank"`
	ID       id.Node           `json:"id"`
	HostID   id.Host           `json:"host_id"`
	HostName string            `json:"host_name"`
	State    NodeState         `json:"state"`
	Reason   Reason            `json:"reason"`
	Detail   string            `json:"detail"`
	GPUs     []GPU             `json:"gpus"`
	Address  string            `json:"address" doc:"on the cluster's network"`
	Progress agentapi.Progress `json:"progress"`
	Required bool              `json:"required" doc:"false once the cluster goes on without it"`
	Since    time.Time         `json:"since"`
	ExitCode *int              `json:"exit_code"`
	// Paths are how its overlay reaches the other ranks at present.
	Paths []agentapi.PeerPath `json:"paths,omitempty"`
}

// GPU is one device of a node.
type GPU struct {
	UUID  string `json:"uuid"`
	Model string `json:"model"`
}

// Network is what the ranks talk over. Busbw is the least any rank measured in the preflight; 0 = not measured (one
// node, or not yet).
type Network struct {
	CIDR      string       `json:"cidr"`
	Scope     market.Scope `json:"scope"`
	BusbwGbps float64      `json:"busbw_gbps"`
	// OfferedGbps is what the offers of its hosts said of the network when the ranks measured it; 0: nothing.
	OfferedGbps float64 `json:"offered_gbps,omitempty"`
	// RTTMicros and PairGbps are matrices by rank, a row per rank that has measured.
	RTTMicros [][]float64 `json:"rtt_us,omitempty"`
	PairGbps  [][]float64 `json:"pair_gbps,omitempty"`
}

// Event is one entry of a cluster's timeline.
type Event struct {
	N      int64           `json:"n" doc:"rises; use it as cursor"`
	At     time.Time       `json:"at"`
	Kind   string          `json:"kind"`
	Rank   *int            `json:"rank"`
	Title  string          `json:"title"`
	Detail string          `json:"detail"`
	Data   json.RawMessage `json:"data,omitempty"`
}
