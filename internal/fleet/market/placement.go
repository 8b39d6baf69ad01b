package market

import (
	"slices"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Placement says where the nodes of a cluster go and what they cost. It is a plan until Hold has claimed its GPUs.
type Placement struct {
	Nodes []Placed    `json:"nodes"` // by rank
	Rate  money.Micro `json:"rate"`  // per hour, all-in: the sum of the nodes' rates
	// Duration is the longest it may run, in seconds, as asked; 0 = open-ended. The hosts' terms allow it.
	Duration int64 `json:"duration"`
}

// Placed is one node of a placement with everything that is frozen at rent.
type Placed struct {
	Rank     int       `json:"rank"`
	Host     id.Host   `json:"host"`
	HostName string    `json:"host_name"` // for people: as it was when the placement was made
	HostOrg  id.Org    `json:"host_org"`
	Offer    id.Offer  `json:"offer"`
	Fabric   id.Fabric `json:"fabric"` // zero: none
	Model    string    `json:"model"`
	GPUs     []GPU     `json:"gpus"` // by index
	// Cached: the host held the image when this was planned, as it said; its start need not wait for a download.
	Cached bool `json:"cached,omitempty"`

	CPUCores float64 `json:"cpu_cores"` // the node's share of its host
	RAMMB    int64   `json:"ram_mb"`
	DiskGB   int64   `json:"disk_gb"`
	// What of the host the renter asked for: that it enforces disk_gb, and an OCI runtime ("" = any).
	DiskLimited bool   `json:"disk_limited,omitempty"`
	Runtime     string `json:"runtime,omitempty"`
	ScratchGB   int64  `json:"scratch_gb,omitempty"` // the node's own, kept for it

	// Of a rank in a gang: what an hour of its standby is worth, and what its lease is liable for when its host fails.
	// Bond is zero where nobody is liable: in a gang of one operator, and for a host that was taken without a bond.
	StandbyRate money.Micro `json:"standby_rate,omitempty"`
	Bond        money.Nano  `json:"bond,omitempty"`

	Price        money.Micro `json:"price"` // per GPU-hour
	Rate         money.Micro `json:"rate"`  // per hour, the whole node
	HostSharePPM int         `json:"host_share_ppm"`
	Lines        []Line      `json:"lines"` // what Rate is made of
}

// GPU names one device.
type GPU struct {
	ID    id.GPU `json:"id"`
	UUID  string `json:"uuid"` // NVML
	Index int    `json:"index"`
}

// Line is one position of a price.
type Line struct {
	Kind      string      `json:"kind"` // gpu, disk, network
	Rank      int         `json:"rank"`
	Text      string      `json:"text"`
	Quantity  int64       `json:"quantity"`
	UnitPrice money.Micro `json:"unit_price"` // per hour
	Price     money.Micro `json:"price_per_hour"`
}

// HostIDs are the hosts of the placement, each once, in the order of their ids: the order in which rows are locked.
func (p Placement) HostIDs() []id.Host {
	hosts := make([]id.Host, 0, len(p.Nodes))
	for _, n := range p.Nodes {
		hosts = append(hosts, n.Host)
	}
	return sortedUnique(hosts)
}

// Lines are the positions of all nodes.
func (p Placement) Lines() []Line {
	var out []Line
	for _, n := range p.Nodes {
		out = append(out, n.Lines...)
	}
	return out
}

// Explain says where the hosts went when nothing fits, in the order the constraints were applied.
type Explain struct {
	Hosts       int                 `json:"hosts"` // looked at
	Exclusions  []client.Exclusion  `json:"explain"`
	Relaxations []client.Relaxation `json:"relaxations,omitempty"`
}

// sortedUnique sorts ids in place, in the order of locks, and drops repetitions.
func sortedUnique[K id.Kind](ids []id.ID[K]) []id.ID[K] {
	slices.SortFunc(ids, id.ID[K].Compare)
	return slices.Compact(ids)
}
