package market

import (
	"slices"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Placement is where the nodes of a cluster are and what they cost. It is only a plan until its GPUs have been claimed.
type Placement struct {
	Nodes []Placed    `json:"nodes"` // by rank
	Rate  money.Micro `json:"rate"`  // per hour, all-in: the sum of the nodes' rates
	// Duration is the longest running time in seconds, as requested; 0 = open-ended. The hosts' terms allow it.
	Duration int64 `json:"duration"`
}

// Placed is one node of a placement with everything that is fixed at rent.
type Placed struct {
	Rank     int       `json:"rank"`
	Host     id.Host   `json:"host"`
	HostName string    `json:"host_name"` // for display; the name at placement
	HostOrg  id.Org    `json:"host_org"`
	Offer    id.Offer  `json:"offer"`
	Fabric   id.Fabric `json:"fabric"` // zero = none
	Model    string    `json:"model"`
	GPUs     []GPU     `json:"gpus"` // by index
	// Cached means that, according to the host's report, it had the image at placement, so the start needs no download.
	Cached bool `json:"cached,omitempty"`

	CPUCores float64 `json:"cpu_cores"` // the node's share of its host
	RAMMB    int64   `json:"ram_mb"`
	DiskGB   int64   `json:"disk_gb"`
	// Features of the host that the renter requires: that it enforces disk_gb, and an OCI runtime ("" = any).
	DiskLimited bool   `json:"disk_limited,omitempty"`
	Runtime     string `json:"runtime,omitempty"`
	// Entrypoint means that the host's agent can replace an image's entry point, whether or not the renter requires it.
	Entrypoint bool  `json:"entrypoint,omitempty"`
	Slice      bool  `json:"slice,omitempty"`      // its GPU is a slice
	ScratchGB  int64 `json:"scratch_gb,omitempty"` // reserved for this node and its volumes
	// Tenant is the renter if the node gets the host's RDMA network: the fabric is claimed for it. Zero = it does not.
	Tenant id.Org `json:"tenant,omitzero"`

	// For a rank in a gang: the price of an hour of its standby, and the amount for which its lease is liable if its host
	// fails. Bond is zero if the lease is not liable: in a gang of one operator, and for a host without a bond.
	StandbyRate money.Micro `json:"standby_rate,omitempty"`
	Bond        money.Nano  `json:"bond,omitempty"`

	Price        money.Micro `json:"price"` // per GPU-hour
	Rate         money.Micro `json:"rate"`  // per hour, the whole node
	HostSharePPM int         `json:"host_share_ppm"`
	Lines        []Line      `json:"lines"` // the parts of Rate
}

// GPU identifies one GPU.
type GPU struct {
	ID    id.GPU `json:"id"`
	UUID  string `json:"uuid"` // NVML
	Index int    `json:"index"`
}

// Line is one line of a price.
type Line = client.PriceLine

// HostIDs returns the hosts of the placement without duplicates, sorted by id, which is the lock order.
func (p Placement) HostIDs() []id.Host {
	hosts := make([]id.Host, 0, len(p.Nodes))
	for _, n := range p.Nodes {
		hosts = append(hosts, n.Host)
	}
	return sortedUnique(hosts)
}

// Runs returns Invalid if the spec has an entry point and the agent of one of the hosts cannot replace an image's:
// it would run the image's own. It also returns Invalid if a node is on a slice and takes too much of the message to
// its host.
func (p Placement) Runs(s Spec) error {
	var bad fault.Fields
	sliced := slices.ContainsFunc(p.Nodes, func(n Placed) bool { return n.Slice })
	if n := s.HostBytes(); sliced && n > agentapi.SliceBytes {
		bad.Add(s.largest(), "a node takes %d bytes of the message to its host, and %d are the most for a slice of a GPU: "+
			"%s", n, agentapi.SliceBytes, smaller)
		return bad.Err()
	}
	if len(s.Entrypoint) == 0 || !slices.ContainsFunc(p.Nodes, func(n Placed) bool { return !n.Entrypoint }) {
		return nil
	}
	bad.Add("entrypoint", "A host of this quote runs an older agent, which cannot replace an image's entry point: ask "+
		"for a quote with this entrypoint.")
	return bad.Err()
}

// Lines returns the price lines of all nodes.
func (p Placement) Lines() []Line {
	var out []Line
	for _, n := range p.Nodes {
		out = append(out, n.Lines...)
	}
	return out
}

// Explain is how many hosts each constraint excluded when nothing fits, in the order in which the constraints were
// applied.
type Explain struct {
	Hosts       int                 `json:"hosts"` // number of hosts examined
	Exclusions  []client.Exclusion  `json:"explain"`
	Relaxations []client.Relaxation `json:"relaxations,omitempty"`
	// Unmeasured names hosts that satisfy all constraints although nothing is known about their network, for a gang that
	// wants a bandwidth; at most maxUnmeasured of them.
	Unmeasured []string `json:"unmeasured,omitempty"`
}

// maxUnmeasured is how many hosts are named.
const maxUnmeasured = 8

// sortedUnique sorts ids in place, in lock order, and removes duplicates.
func sortedUnique[K id.Kind](ids []id.ID[K]) []id.ID[K] {
	slices.SortFunc(ids, id.ID[K].Compare)
	return slices.Compact(ids)
}
