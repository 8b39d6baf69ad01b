package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Action is an action that the renter may take on a cluster now.
type Action string

const (
	ActionRelease Action = "release"
	ActionRestart Action = "restart"
)

// Cluster is the REST API's cluster.
type Cluster struct {
	ID     id.Cluster       `json:"id"`
	Org    id.Org           `json:"-"`
	Name   string           `json:"name"`
	State  lifecycle.State  `json:"state"`
	Reason lifecycle.Reason `json:"reason"`
	// Detail explains to people what happened, what was charged, and what to do.
	Detail  string      `json:"detail"`
	Actions []Action    `json:"actions"`
	Spec    market.Spec `json:"spec"` // values of env are masked
	// ImageDigest is the digest to which the registry resolved the image's name when the first rank pulled it: every rank
	// and every start runs this image.
	ImageDigest string `json:"image_digest" doc:"what the image was pinned to; empty before a host has asked the registry"`
	// PricePerHour is binding; PricePerSecond is for display.
	PricePerHour   money.Micro `json:"price_per_hour"`
	PricePerSecond money.Nano  `json:"price_per_second"`
	Currency       string      `json:"currency"`
	CreatedAt      time.Time   `json:"created_at"`
	RunningAt      *time.Time  `json:"running_at"`
	EndedAt        *time.Time  `json:"ended_at"`
	// RunUntil is the time until which the cluster is paid for; it is extended while money lasts.
	RunUntil *time.Time `json:"run_until"`
	// StopsAt is when the cluster stops unless something changes before, and StopsBecause what stops it.
	StopsAt      *time.Time       `json:"stops_at,omitempty" doc:"when the cluster stops unless something changes before; left out after the end, and while nothing within a year stops it"`
	StopsBecause client.StopCause `json:"stops_because,omitempty" enum:"start_deadline,max_duration,budget,org_budget,funds,host_reclaimed,no_replacement,node_lost" doc:"what stops it at stops_at; left out without it"`
	Epoch        int              `json:"epoch" doc:"number of the present start"`
	Nodes        []Node           `json:"nodes"`
	Network      Network          `json:"network"`
	// CostSoFar and BillableSeconds count time of a running cluster that is not proven yet as if it were; once settled,
	// they are what was billed.
	CostSoFar       money.Nano `json:"cost_so_far"`
	BillableSeconds Seconds    `json:"billable_seconds"`
	// Replacing is set while ranks that are lost for good wait for another host.
	Replacing *Replacing `json:"replacing,omitempty"`
	// Doubt is set while a rank is in doubt and seconds do not count. It is nil in lists.
	Doubt *Doubt `json:"doubt,omitempty" doc:"why seconds do not count at this moment; left out in lists and while nothing is in doubt"`
	// Billing reports whether seconds count at this moment.
	Billing bool `json:"billing"`
}

// Seconds is a duration that is encoded as a JSON number of seconds with milliseconds as decimals.
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
	Rank     int                 `json:"rank"`
	ID       id.Node             `json:"id"`
	HostID   id.Host             `json:"host_id"`
	HostName string              `json:"host_name"`
	State    lifecycle.NodeState `json:"state"`
	Reason   lifecycle.Reason    `json:"reason"`
	Detail   string              `json:"detail"`
	GPUs     []GPU               `json:"gpus"`
	Address  string              `json:"address" doc:"on the cluster's network"`
	Progress agentapi.Progress   `json:"progress"`
	Required bool                `json:"required" doc:"false once the cluster goes on without it"`
	Since    time.Time           `json:"since"`
	ExitCode *int                `json:"exit_code"`
	// Paths are the ways by which its overlay reaches the other ranks at present.
	Paths []agentapi.PeerPath `json:"paths,omitempty"`
	// Uploading is set while its host uploads what the ended node wrote.
	Uploading *client.Uploading `json:"uploading,omitempty" doc:"set while the end of the node waits for its uploads to buckets and volumes"`
}

// GPU is one device of a node.
type GPU = client.NodeGPU

// Network is the network between the ranks. Busbw is the lowest bandwidth that any rank measured in the preflight; 0 =
// not measured (one node, or not yet).
type Network = client.ClusterNetwork

// Event is one entry of a cluster's timeline.
type Event = client.Event

// Doubt explains that a cluster is not billed at the moment because a rank is not proven up, and what follows.
type Doubt = client.Doubt

// doubtOf returns why the cluster is not billed at the moment; nil if it is billed, or if nothing is in doubt.
func (vs *Views) doubtOf(ctx context.Context, v Cluster) (*Doubt, error) {
	if v.State != lifecycle.Degraded && v.State != lifecycle.Running || v.RunningAt == nil || v.Billing ||
		v.Replacing != nil {
		return nil, nil
	}
	row, err := vs.db.Q.DoubtNow(ctx, v.ID)
	if err != nil {
		return nil, fmt.Errorf("doubt about %s: %w", v.ID, err)
	}
	d := Doubt{Kind: "silent", Then: "end"}
	switch v.Spec.OnNodeFailure {
	case "replace":
		d.Then = "replace"
	case "ignore":
		d.Then = "go_on"
	}
	if row.DisputedMs != 0 {
		d.Kind = "disputed"
		d.Since, d.Why = time.UnixMilli(row.DisputedMs).UTC(), "have lost contact with each other; no one is to blame, and "+
			"you pay "+
			"nothing for it."
		for _, r := range row.Disputed {
			d.Ranks = append(d.Ranks, int(r))
		}
		if d.Since.Sub(*v.RunningAt) >= vs.cfg.Young { // in a younger run, the grace depends on its last start
			until := d.Since.Add(vs.cfg.UndGrace)
			d.Until = &until
		}
	} else if lost := v.lost(); len(lost) > 0 {
		d.Why = "does not answer."
		if len(lost) > 1 {
			d.Why = "do not answer."
		}
		until := lost[0].Since
		for _, n := range lost {
			d.Ranks = append(d.Ranks, n.Rank)
			if n.Since.Before(until) {
				until = n.Since
			}
		}
		until = until.Add(vs.cfg.LossGrace).UTC()
		d.Since, d.Until = lost[0].Since.UTC(), &until
	} else {
		return nil, nil
	}
	if row.DoubtMs != 0 {
		d.Since = time.UnixMilli(row.DoubtMs).UTC()
	}
	d.Why = fmt.Sprintf("Not billed since %s: %s %s", clockUTC(d.Since), v.named(d.Ranks), d.Why)
	if d.Until != nil {
		d.Why += " " + then(d)
	}
	return &d, nil
}

// then returns what happens if a doubt lasts.
func then(d Doubt) string {
	at := clockUTC(*d.Until)
	switch d.Then {
	case "replace":
		return "Ends or is replaced at " + at + "."
	case "go_on":
		return "The other ranks go on without it from " + at + "."
	}
	return "The cluster ends at " + at + "."
}

func clockUTC(t time.Time) string { return t.UTC().Format("15:04:05") }

// lost returns the required nodes that are lost.
func (v Cluster) lost() (out []Node) {
	for _, n := range v.Nodes {
		if n.Required && n.State == lifecycle.NodeLost {
			out = append(out, n)
		}
	}
	return out
}

// named returns ranks as text: "rank 1 (host lisbon-3)" or "ranks 0 and 1".
func (v Cluster) named(ranks []int) string {
	if len(ranks) != 1 {
		return rankList(ranks)
	}
	for _, n := range v.Nodes {
		if n.Rank == ranks[0] {
			return fmt.Sprintf("rank %d (host %s)", n.Rank, n.HostName)
		}
	}
	return rankList(ranks)
}

// withDoubt adds to a cluster the reason for which it is not billed at the moment.
func (vs *Views) withDoubt(ctx context.Context, v Cluster, err error) (Cluster, error) {
	if err != nil {
		return v, err
	}
	v.Doubt, err = vs.doubtOf(ctx, v)
	if v.Doubt != nil && v.Doubt.Then == "end" {
		v.stopsAt(stop{deref(v.Doubt.Until), client.StopNodeLost})
	}
	return v, err
}

// Replacing explains that ranks wait for another host.
type Replacing = client.Replacing

// replacingOf returns what the rows of a cluster contain about ranks that wait.
func replacingOf(r dbq.Cluster, nodes []dbq.ClusterNodesRow) *Replacing {
	if r.ReplaceUntil == nil || lifecycle.State(r.State) != lifecycle.Degraded {
		return nil
	}
	out := &Replacing{Until: *r.ReplaceUntil, Why: r.ReplaceNote, Ranks: []int{}}
	for _, n := range nodes {
		if n.Node.ClusterID == r.ID && n.Required && n.LeaseEndedAt != nil {
			out.Ranks = append(out.Ranks, int(n.Node.Rank))
		}
	}
	return out
}
