package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// State of a cluster.
type State string

const (
	Provisioning State = "provisioning" // starting: free of charge
	Running      State = "running"      // every rank is up: seconds count
	Degraded     State = "degraded"
	Releasing    State = "releasing" // ended; hosts are cleaning up
	Released     State = "released"
	Failed       State = "failed"
)

// Ended reports whether nothing runs any more for the renter.
func (s State) Ended() bool { return s == Releasing || s == Released || s == Failed }

// Cluster is a rented cluster.
type Cluster struct {
	ID              id.Cluster     `json:"id"`
	Name            string         `json:"name"`
	State           State          `json:"state"`
	Reason          string         `json:"reason"`
	Detail          string         `json:"detail"` // what happened, what was charged, what to do
	Actions         []string       `json:"actions"`
	Spec            Spec           `json:"spec"`         // values of env are masked
	ImageDigest     string         `json:"image_digest"` // what the image was pinned to; "" before a host has asked
	PricePerHour    money.Micro    `json:"price_per_hour"`
	PricePerSecond  money.Nano     `json:"price_per_second"` // for display
	Currency        string         `json:"currency"`
	CreatedAt       time.Time      `json:"created_at"`
	RunningAt       *time.Time     `json:"running_at"`
	EndedAt         *time.Time     `json:"ended_at"`
	RunUntil        *time.Time     `json:"run_until"` // paid for until then; extended while money lasts
	StopsAt         *time.Time     `json:"stops_at"`  // nil: it has ended, or nothing within a year stops it
	StopsBecause    StopCause      `json:"stops_because"`
	Epoch           int            `json:"epoch"`
	Nodes           []Node         `json:"nodes"`
	Network         ClusterNetwork `json:"network"`
	CostSoFar       money.Nano     `json:"cost_so_far"`
	BillableSeconds json.Number    `json:"billable_seconds"`
	Billing         bool           `json:"billing"`
	Replacing       *Replacing     `json:"replacing"` // nil: no rank waits for another host
	Doubt           *Doubt         `json:"doubt"`     // nil: no rank is in doubt; always nil in lists
}

// Doubt says why a cluster is not billed at the moment.
type Doubt struct {
	Kind  string    `json:"kind" enum:"silent,disputed" doc:"silent: ranks do not answer, and the time is billed if they prove later that they missed nothing. disputed: ranks have lost contact with each other, and the time is not billed"`
	Since time.Time `json:"since" doc:"not billed since then"`
	Ranks []int     `json:"ranks" doc:"that do not answer, or have lost contact with each other"`
	// Until is when the rank is given up.
	Until *time.Time `json:"until" doc:"when it is decided at the latest; null: not known"`
	Then  string     `json:"then" enum:"end,replace,go_on" doc:"what happens then: the cluster ends, another host takes the rank, or the others go on without it"`
	Why   string     `json:"why" doc:"the same in sentences, times in UTC"`
}

// Replacing says that ranks whose hosts were lost wait for other ones.
type Replacing struct {
	Ranks []int     `json:"ranks"`
	Until time.Time `json:"until" doc:"when the cluster ends if none is found"`
	Why   string    `json:"why" doc:"why none was found so far; empty: not tried yet"`
}

// Node is one rank.
type Node struct {
	Rank     int       `json:"rank"`
	ID       id.Node   `json:"id"`
	HostID   id.Host   `json:"host_id"`
	HostName string    `json:"host_name"`
	State    string    `json:"state"`
	Reason   string    `json:"reason"`
	Detail   string    `json:"detail"`
	GPUs     []NodeGPU `json:"gpus"`
	Address  string    `json:"address"`
	Progress Progress  `json:"progress"`
	Required bool      `json:"required"`
	Since    time.Time `json:"since"`
	ExitCode *int      `json:"exit_code"`
	Paths    []Path    `json:"paths"`
	// Uploading is set while the end of the node waits for its uploads.
	Uploading *Uploading `json:"uploading,omitempty"`
}

// Uploading is since when and until when a host uploads what an ended node wrote to buckets and volumes. How much is
// left of it is in the node's progress.
type Uploading struct {
	Since    time.Time `json:"since"`
	EndsBy   time.Time `json:"ends_by" doc:"what is not uploaded by then is lost"`
	GPUsFree bool      `json:"gpus_free" doc:"whether others can rent the node's GPUs already"`
}

// Path is how a node reaches another rank: lan, direct, punched (through both routers), relay.
type Path struct {
	Rank int    `json:"rank"`
	Path string `json:"path"`
	MTU  int    `json:"mtu"`
}

// NodeGPU is one device of a node.
type NodeGPU struct {
	UUID  string `json:"uuid"`
	Model string `json:"model"`
}

// Progress is how far a node's present step is.
type Progress struct {
	Step       string  `json:"step"`
	Done       int64   `json:"done"` // bytes, while pulling
	Total      int64   `json:"total"`
	Layers     []Layer `json:"layers"`
	WaitingFor string  `json:"waiting_for"` // the cause of a delay, in words
	// Uploads is what the node has written to buckets and is not in their stores yet; nil: nothing is known of.
	Uploads *Uploads `json:"uploads,omitempty"`
}

// Uploads is what waits to be uploaded.
type Uploads struct {
	Files   int    `json:"files"`
	Bytes   int64  `json:"bytes"`
	Problem string `json:"problem,omitempty"`
}

// Layer is one image layer's download.
type Layer struct {
	Digest string `json:"digest"`
	Done   int64  `json:"done"`
	Total  int64  `json:"total"`
	Cached bool   `json:"cached"`
}

// ClusterNetwork is what the ranks talk over.
type ClusterNetwork struct {
	CIDR      string  `json:"cidr"`
	Scope     string  `json:"scope" enum:"any,fabric,host"`
	BusbwGbps float64 `json:"busbw_gbps"` // as the preflight measured it; 0: not measured
	// OfferedGbps is the bandwidth in the offers of its hosts when the ranks measured it; 0 = none.
	OfferedGbps float64 `json:"offered_gbps,omitempty"`
	// RTTMicros and PairGbps are matrices by rank, a row per rank that has measured.
	RTTMicros [][]float64 `json:"rtt_us,omitempty"`
	PairGbps  [][]float64 `json:"pair_gbps,omitempty"`
	// RDMA is what the ranks' GPUs measured over the RDMA ports before the start; nil: nothing was to be measured.
	RDMA *ClusterRDMA `json:"rdma,omitempty" doc:"what the nodes' GPUs measured with NCCL over the RDMA ports before the start; left out if nothing was to be measured, as when the same hosts had measured within a day"`
}

// ClusterRDMA is what the nodes of a cluster measured with NCCL over their RDMA ports.
type ClusterRDMA struct {
	BusbwGbps float64 `json:"busbw_gbps"`
	Rails     int     `json:"rails" doc:"how many ports each node used, the least of all nodes"`
	GDR       bool    `json:"gdr" doc:"whether the ports read the GPUs' memory directly"`
	NCCL      string  `json:"nccl" doc:"the version of NCCL"`
	Detail    string  `json:"detail,omitempty" doc:"why there is no figure"`
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

// Usage is what a cluster used and costs.
type Usage struct {
	BillableSeconds Seconds     `json:"billable_seconds"`
	GPUSeconds      Seconds     `json:"gpu_seconds"`
	Cost            money.Nano  `json:"cost"`        // of all proven time: the sum of the segments' costs
	Posted          money.Nano  `json:"posted"`      // of that, booked
	CostSoFar       money.Nano  `json:"cost_so_far"` // Cost, and what the last seconds will cost once they are proven
	EnergyWh        string      `json:"energy_wh"`   // decimal
	Settled         bool        `json:"settled"`     // nothing will change any more
	Currency        string      `json:"currency"`
	Segments        []Segment   `json:"segments"`
	Credits         []Credit    `json:"credits"`  // given back for hosts that failed
	Credited        money.Nano  `json:"credited"` // their sum; Cost is before it
	NotBilled       []NotBilled `json:"not_billed" doc:"time in which the cluster ran and not every rank was proven up, once it is decided"`
}

// NotBilled is time in which a cluster ran and not every rank was proven up.
type NotBilled struct {
	Cluster     id.Cluster `json:"cluster_id"`
	ClusterName string     `json:"cluster"`
	From        time.Time  `json:"from"`
	To          time.Time  `json:"to"`
	Seconds     Seconds    `json:"seconds"`
	Class       string     `json:"class" enum:"platform,proof,silence,undecided" doc:"as in listSuspensions"`
	Culprits    []int      `json:"culprit_ranks" doc:"empty: no host is to blame"`
	Why         string     `json:"why" doc:"such as: rank 1 (host lisbon-3) was cut off"`
}

// Line returns the statement's line: "30.0 s not billed: rank 1 was cut off".
func (n NotBilled) Line() string {
	return fmt.Sprintf("%.1f s not billed: %s", float64(n.Seconds)/1000, n.Why)
}

// Credit is what was given back for a node whose host failed.
type Credit struct {
	Rank     int        `json:"rank"`
	Lease    id.Lease   `json:"lease_id"`
	HostID   id.Host    `json:"host_id"`
	HostName string     `json:"host_name"`
	Reason   string     `json:"reason" doc:"host_lost, gpu_failed, …"`
	From     time.Time  `json:"from" doc:"the billed time from here"`
	To       time.Time  `json:"to" doc:"to here is free"`
	Amount   money.Nano `json:"amount"`
}

// Segment is one line of the statement.
type Segment struct {
	Rank         int         `json:"rank"`
	Lease        id.Lease    `json:"lease_id"`
	HostID       id.Host     `json:"host_id"`
	HostName     string      `json:"host_name"`
	Epoch        int         `json:"epoch"`
	Seq          int64       `json:"seq"`
	From         time.Time   `json:"from"`
	To           time.Time   `json:"to"`
	Seconds      Seconds     `json:"seconds"`
	GPUs         int         `json:"gpus"`
	PricePerHour money.Micro `json:"price_per_hour"`
	Cost         money.Nano  `json:"cost"`
}

// LogsOf says which lines.
type LogsOf struct {
	Node       *int // nil: all ranks, each line with its rank before it
	Follow     bool // until the cluster has ended
	Tail       *int // nil: all
	Timestamps bool
	Grep       string // only lines with this text, in upper or lower case; "": all
}

// LogStream is what the ranks print, as text.
type LogStream struct {
	io.ReadCloser
	// Waiting says which ranks could have printed nothing yet when the stream began, and what they were at: "rank 0 is
	// pulling"; "" when all could have.
	Waiting string
	// Cut is what is missing at the beginning; nil if nothing is known to be missing.
	Cut *LogCut
}

// LogCut is what is missing at the beginning of what ranks printed: there was too much for one answer, or for what is
// kept of a run that has ended. Its numbers are 0 if they are not known.
type LogCut struct{ Lines, Bytes int64 }

// logCut reads the header Muster-Cut: "true" or "true; lines=56458; bytes=3387480".
func logCut(header string) *LogCut {
	if header == "" {
		return nil
	}
	var c LogCut
	for part := range strings.SplitSeq(header, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err != nil:
		case name == "lines":
			c.Lines = n
		case name == "bytes":
			c.Bytes = n
		}
	}
	return &c
}

// Metrics are readings of a cluster's GPUs and nodes.
type Metrics struct {
	From  time.Time     `json:"from"`
	To    time.Time     `json:"to"`
	Step  int           `json:"step" doc:"seconds"`
	GPUs  []GPUMetrics  `json:"gpus"`
	Nodes []NodeMetrics `json:"nodes" doc:"what each rank exchanged with networks and disks"`

	Network NetworkMetrics `json:"network"`
}

// NetworkMetrics is what the preflight measured between the ranks.
type NetworkMetrics struct {
	BusbwGbps float64     `json:"busbw_gbps" doc:"all-reduce bus bandwidth as the preflight measured it; 0: not measured"`
	RTTMicros [][]float64 `json:"rtt_us" doc:"between ranks, a row per rank"`
	PairGbps  [][]float64 `json:"pair_gbps"`
}

// NodeMetrics are the readings of one rank on one host.
type NodeMetrics struct {
	Rank     int        `json:"rank"`
	LeaseID  id.Lease   `json:"lease_id"`
	HostID   id.Host    `json:"host_id"`
	HostName string     `json:"host_name"`
	Samples  []NodeRate `json:"samples"`
}

// NodeRate is what a node exchanged per second, in bytes, between a sample and the one before; nil where the host does
// not know it.
type NodeRate struct {
	At        time.Time `json:"at"`
	NetRx     *float64  `json:"net_rx" doc:"bytes per second received from the internet; null where it is not known"`
	NetTx     *float64  `json:"net_tx" doc:"bytes per second sent to the internet; null where it is not known"`
	RanksRx   *float64  `json:"ranks_rx" doc:"bytes per second received from the other ranks; null where it is not known"`
	RanksTx   *float64  `json:"ranks_tx" doc:"bytes per second sent to the other ranks; null where it is not known"`
	DiskRead  *float64  `json:"disk_read" doc:"bytes per second read from disks; null where it is not known"`
	DiskWrite *float64  `json:"disk_write" doc:"bytes per second written to disks; null where it is not known"`
	Scratch   *float64  `json:"scratch" doc:"bytes that the node's scratch holds; null without scratch"`
}

// GPUMetrics are the readings of one GPU.
type GPUMetrics struct {
	Rank     int      `json:"rank"`
	HostID   id.Host  `json:"host_id"`
	HostName string   `json:"host_name"`
	UUID     string   `json:"uuid"`
	Model    string   `json:"model"`
	VRAMMB   int64    `json:"vram_mb"`
	Samples  []Sample `json:"samples"`
}

// Sample is one reading; nil where the GPU does not report it.
type Sample struct {
	At     time.Time `json:"at"`
	Util   *int      `json:"util" doc:"percent; null where the GPU does not report it"`
	MemMB  *int      `json:"mem_mb"`
	PowerW *int      `json:"power_w"`
	TempC  *int      `json:"temp_c"`
	// Speed is nil while the GPU idles, and where the host's agent does not report it.
	Speed *GPUSpeed `json:"speed" doc:"how fast the GPU ran; null: it idled, or its host does not report it"`
}

// GPUSpeed is how fast a GPU ran, and what slowed it down; nil where the GPU does not report it. The counters begin
// when the GPU's driver is loaded.
type GPUSpeed struct {
	SMMHz        *int     `json:"sm_mhz" doc:"clock of its processors in MHz; null: not reported" example:"1980"`
	MemMHz       *int     `json:"mem_mhz" doc:"clock of its memory in MHz; null: not reported" example:"2619"`
	Limits       []string `json:"limits" enum:"power_limit,thermal,hw_thermal,power_brake,hw_slowdown,clock_setting,sync_boost,display,other" doc:"what held its clocks down; thermal, hw_thermal, power_brake and hw_slowdown are throttling"`
	FanPercent   *int     `json:"fan_percent" doc:"its fastest fan; null: it has none, or does not report it" example:"45"`
	PCIeReplays  *int64   `json:"pcie_replays" doc:"packets sent again over PCIe; null: not reported" example:"0"`
	NVLinkErrors *int64   `json:"nvlink_errors" doc:"CRC errors, replays and recoveries of its NVLinks; null: it has none" example:"0"`
	EnergyJ      *int64   `json:"energy_j" doc:"joules that it has used; known at some samples; null: not known" example:"1843200"`
}

// ActOnClusterRequest is the body of ActOnCluster.
type ActOnClusterRequest struct {
	Action string `json:"action" doc:"one of the object's actions"`
}

// ClustersQuery selects clusters.
type ClustersQuery struct {
	PageOf
	State string `query:"state" enum:"active,ended,provisioning,running,degraded,releasing,released,failed" doc:"only clusters in this state; active: all that have not ended; ended: all others"`
	Query string `query:"q" maxLength:"200" example:"train team=vision" doc:"words, each of which has to match a part of the name, the project, the image or a label (team=vision), or the end of the id"`
	Sort  string `query:"sort" enum:"-created,created,name,-name,price,-price,project,-project" default:"-created" doc:"the order; - reverses it"`
}

// WaitQuery says for what state of a cluster to wait.
type WaitQuery struct {
	Wait    string `query:"wait" enum:"running,released,failed,degraded,releasing,ended" doc:"hold the answer until the cluster is in this state or has ended"`
	Timeout int    `query:"timeout" minimum:"0" maximum:"300" default:"60" doc:"seconds to hold the answer at most"`
}

// RankQuery selects a rank of a cluster.
type RankQuery struct {
	Node int `query:"node" minimum:"0" doc:"the rank; left out: 0"`
}

// MetricsQuery selects the time of readings.
type MetricsQuery struct {
	From time.Time `query:"from" doc:"left out: an hour before 'to'"`
	To   time.Time `query:"to" doc:"left out: now"`
	Step int       `query:"step" minimum:"1" maximum:"86400" doc:"seconds between samples; left out: as fine as fits"`
}

// Rent rents a cluster.
func (s ClustersService) Rent(ctx context.Context, spec Spec) (out Cluster, err error) {
	err = s.c.call(ctx, http.MethodPost, path("clusters"), nil, spec, &out)
	return out, err
}

// RentQuote rents what a quote holds. Of the spec, only fields that change neither placement nor price may be set.
func (s ClustersService) RentQuote(ctx context.Context, quote id.Quote, spec Spec) (out Cluster, err error) {
	in := struct {
		QuoteID id.Quote `json:"quote_id"`
		Spec
	}{quote, spec}
	err = s.c.call(ctx, http.MethodPost, path("clusters"), nil, in, &out)
	return out, err
}

// Get gets a cluster as it is now.
func (s ClustersService) Get(ctx context.Context, cluster id.Cluster) (out Cluster, err error) {
	err = s.c.call(ctx, http.MethodGet, path("clusters", cluster), nil, nil, &out)
	return out, err
}

// Wait waits until the cluster is in the state. It calls each, unless it is nil, with the cluster about once a second.
// If the cluster ends in another state, Wait returns it with a fault of kind Conflict.
func (s ClustersService) Wait(ctx context.Context, cluster id.Cluster, state State, each func(Cluster)) (Cluster,
	error) {
	timeout := "60"
	if each != nil {
		timeout = "0" // answer at once
	}
	for {
		var v Cluster
		q := url.Values{"wait": {string(state)}, "timeout": {timeout}}
		err := s.c.call(ctx, http.MethodGet, path("clusters", cluster), q, nil, &v)
		if err != nil {
			return v, err
		}
		if each != nil {
			timeout = "1"
			each(v)
		}
		switch {
		case v.State == state || (state == Releasing && v.State.Ended()):
			return v, nil
		case v.State == Released || v.State == Failed || (v.State == Releasing && state != Released):
			return v, fault.New(fault.Conflict, "the cluster is %s (%s) and will not be %s: %s", v.State, v.Reason, state,
				v.Detail)
		}
	}
}

// Logs streams what the ranks print. The caller closes it.
func (s ClustersService) Logs(ctx context.Context, cluster id.Cluster, l LogsOf) (*LogStream, error) {
	q := url.Values{}
	if l.Node != nil {
		q.Set("node", strconv.Itoa(*l.Node))
	}
	if l.Tail != nil {
		q.Set("tail", strconv.Itoa(*l.Tail))
	}
	if l.Grep != "" {
		q.Set("grep", l.Grep)
	}
	if l.Follow {
		q.Set("follow", "true")
	}
	if l.Timestamps {
		q.Set("timestamps", "true")
	}
	resp, err := s.c.send(ctx, http.MethodGet, path("clusters", cluster, "logs"), q, nil, "")
	if err != nil {
		return nil, s.c.unreachable(err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, problemOf(resp)
	}
	return &LogStream{resp.Body, resp.Header.Get("Muster-Waiting"), logCut(resp.Header.Get("Muster-Cut"))}, nil
}
