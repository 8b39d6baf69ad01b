package client

import (
	"context"
	"net/http"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Offer is what a host sells now: one model on one host. A nil field is not known.
type Offer struct {
	ID              id.Offer    `json:"id"`
	HostID          id.Host     `json:"host_id"`
	HostName        string      `json:"host_name"`
	GPUModel        string      `json:"gpu_model"`
	GPUArch         string      `json:"gpu_arch"`
	GPUVendor       string      `json:"gpu_vendor" enum:"nvidia,amd"`
	Kind            string      `json:"kind" enum:"gpu,slice" doc:"slice: a part of a GPU with memory of its own (MIG), rented by itself"`
	GPUsFree        int         `json:"gpus_free"`
	GPUsTotal       int         `json:"gpus_total"`
	VRAMGB          int64       `json:"vram_gb"`
	ComputeCap      string      `json:"compute_cap"`
	CUDAMax         string      `json:"cuda_max"`
	ROCmMax         string      `json:"rocm_max" doc:"newest ROCm that the driver runs; empty: none, or not known" example:"6.4"`
	Driver          string      `json:"driver"`
	Display         bool        `json:"display" doc:"whether a display uses one of the GPUs: the driver then ends kernels that run for some seconds"`
	NVLink          bool        `json:"nvlink"`
	NVLinkGbps      float64     `json:"nvlink_gbps"`
	PowerLimitW     *int64      `json:"power_limit_w" doc:"watts each GPU may draw; the lowest of the offer's GPUs"`
	PowerDefaultW   *int64      `json:"power_default_w" doc:"watts it was made to draw; with a limit below it is slower"`
	PCIeGen         int         `json:"pcie_gen"`
	PCIeMeasured    bool        `json:"pcie_measured" doc:"whether pcie_gen was measured under load, of all of the offer's GPUs; false: it is what they report to support"`
	Degraded        *string     `json:"degraded" doc:"which of the offer's GPUs are slower than they could be, why, and since when; null: none is" example:"1 of 8 GPUs: HW thermal slowdown since 2026-11-24 02:10 UTC"`
	CPUCores        int         `json:"cpu_cores" doc:"of the host; a node gets the part its GPUs are of the host's"`
	RAMGB           int64       `json:"ram_gb" doc:"of the host, in GiB; as with cpu_cores"`
	DiskGB          int64       `json:"disk_gb" doc:"free"`
	DiskLimited     bool        `json:"disk_limited" doc:"a node cannot write more than its disk_gb, nor can its neighbours"`
	ScratchGB       int64       `json:"scratch_gb" doc:"free of the fast disk that nodes can ask for scratch on; included in the price; 0: the host has none"`
	Runtimes        []string    `json:"runtimes" doc:"OCI runtimes that workloads can be run with: runc, runsc (gVisor); in queries: runtime"`
	Shared          []string    `json:"shared" doc:"shared file systems that the host has, by name; a cluster can mount them (mounts in the spec)" example:"[\"lab-nfs\"]"`
	Region          string      `json:"region"`
	Fabric          *string     `json:"fabric"`
	BusbwGbps       *float64    `json:"busbw_gbps" doc:"all-reduce between hosts of the fabric, measured"`
	RDMAGbps        float64     `json:"rdma_gbps" doc:"RDMA ports that a whole host comes with (network.fabric in the spec), together in Gbit/s; 0: none" example:"3200"`
	RDMAIsolation   *string     `json:"rdma_isolation" doc:"sole_tenant: one organisation at a time rents the fabric with RDMA, which separates no tenants itself; partition: each cluster has a partition of the fabric, and other organisations may rent the rest; null: no RDMA" example:"sole_tenant"`
	BusbwRDMA       *float64    `json:"busbw_rdma" doc:"all-reduce over the RDMA ports of whole hosts, in Gbit/s, as the GPUs of a cluster that had this host measured it with NCCL within 30 days, the best of a week; null: not measured"`
	BusbwNVLink     *float64    `json:"busbw_nvlink" doc:"bandwidth over NVLink between the host's GPUs of the model, in Gbit/s in one direction: each sent memory to the next one in a ring, all at the same time, and this is what the slowest sent, rounded down to two digits; the bus bandwidth of a ring all-reduce; null: not measured within 30 days, or the ring is not of NVLinks"`
	NetUpMbps       *float64    `json:"net_up_mbps"`
	NetDownMbps     *float64    `json:"net_down_mbps"`
	Reliability     *float64    `json:"reliability" doc:"0 to 1"`
	Verified        bool        `json:"verified"`
	PricePerGPUHour money.Micro `json:"price_per_gpu_hour"`
	PricePerGPUSec  money.Nano  `json:"price_per_gpu_second" doc:"for display; the price per hour binds"`
	MinGPUs         int         `json:"min_gpus"`
	MaxDuration     *int64      `json:"max_duration" doc:"seconds; null: no limit"`
	Simulated       bool        `json:"simulated"`
	MultiNode       bool        `json:"multi_node"`
}

// OfferPage is a page of a search, with figures of all offers that match. Only offers with a free GPU are listed.
type OfferPage struct {
	Page[Offer]
	Total    int `json:"total" doc:"offers that match, of all pages"`
	GPUsFree int `json:"gpus_free"`
	Hosts    int `json:"hosts"`
	Fabrics  int `json:"fabrics"`
	// Explain is how many hosts each term of the query excluded, of those with a free GPU.
	Explain []Exclusion `json:"explain"`
	// Models and Regions are those of all offers with a free GPU, whatever the query, most GPUs first.
	Models  []Facet `json:"gpu_models"`
	Regions []Facet `json:"regions"`
	// DidYouMean is a query with the words that no offer has replaced by similar ones. It is nil if offers match.
	DidYouMean *string `json:"did_you_mean" doc:"similar query that may match, if this one matches nothing" example:"h100"`
}

// Facet is one value that offers have, and how many GPUs are free with it.
type Facet struct {
	Value    string `json:"value"`
	GPUsFree int    `json:"gpus_free"`
}

// Exclusion is how many hosts one constraint excluded of those that the constraints before it left.
type Exclusion struct {
	Constraint string `json:"constraint"` // "gpu_model = H100", "gpus_per_node = 8", "fabric: 4 nodes in one"
	Excluded   int    `json:"excluded_hosts"`
	Left       int    `json:"left_hosts"`
}

// Relaxation is a change of the spec with which it would fit.
type Relaxation struct {
	Field string      `json:"field"`          // of the spec: "gpu", "nodes", "network.scope", …
	From  string      `json:"from,omitempty"` // "busbw_gbps >= 200"
	To    string      `json:"to,omitempty"`   // "busbw_gbps >= 150"; empty: the term is left out
	Value any         `json:"value"`          // what the spec's field would become
	Rate  money.Micro `json:"price_per_hour"`
}

// Spec describes a cluster to rent. A zero field takes the server's default.
type Spec struct {
	Name            string            `json:"name,omitempty"`
	Project         string            `json:"project,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Nodes           int               `json:"nodes,omitempty"`
	GPUsPerNode     int               `json:"gpus_per_node,omitempty"`
	GPU             string            `json:"gpu,omitempty"` // offer query every node must match
	Image           string            `json:"image,omitempty"`
	RegistryAuth    *RegistryAuth     `json:"registry_auth,omitempty"`
	Restart         string            `json:"restart,omitempty"`    // never, on_failure
	Egress          string            `json:"egress,omitempty"`     // full, limited, off
	Entrypoint      []string          `json:"entrypoint,omitempty"` // in place of the image's entry point and command
	Command         []string          `json:"command,omitempty"`
	User            string            `json:"user,omitempty"` // NAME|UID[:GROUP|GID], in place of the image's USER
	Env             map[string]string `json:"env,omitempty"`
	Ports           []Port            `json:"ports,omitempty"`
	DiskGB          int64             `json:"disk_gb,omitempty"`
	DiskLimited     bool              `json:"disk_limited,omitempty"` // only hosts that enforce disk_gb
	ScratchGB       int64             `json:"scratch_gb,omitempty"`   // per node, at /scratch
	Mounts          []Mount           `json:"mounts,omitempty"`       // volumes and buckets
	Runtime         string            `json:"runtime,omitempty"`      // runc, runsc (gVisor)
	Trust           string            `json:"trust,omitempty"`        // bonded, any
	SSHKeyIDs       []id.SSHKey       `json:"ssh_key_ids,omitempty"`
	MaxPricePerHour *money.Micro      `json:"max_price_per_hour,omitempty"` // of the whole cluster
	MaxDuration     *int64            `json:"max_duration,omitempty"`       // seconds of running time
	Budget          *money.Nano       `json:"budget,omitempty"`
	Network         *Network          `json:"network,omitempty"`
	OnNodeFailure   string            `json:"on_node_failure,omitempty"` // replace, fail, ignore
}

// ClusterSpec is a cluster spec as the server returns it: complete, with every default, and with the values of env
// masked. Spec is what a caller sends.
type ClusterSpec struct {
	Name    string            `json:"name" doc:"for people; need not be unique"`
	Project *string           `json:"project"`
	Labels  map[string]string `json:"labels"`

	Nodes       int    `json:"nodes" doc:"1 to 128"`
	GPUsPerNode int    `json:"gpus_per_node" doc:"1 to 16"`
	GPU         string `json:"gpu" doc:"offer query every node must match; empty: any GPU"`

	Image        string            `json:"image"`
	RegistryAuth *RegistryAuth     `json:"registry_auth,omitempty" doc:"for a private registry; stored encrypted, never shown again"`
	Restart      string            `json:"restart" enum:"never,on_failure"`
	Egress       string            `json:"egress" enum:"full,limited,off"`
	Entrypoint   []string          `json:"entrypoint,omitempty" doc:"in place of the image's own entry point and command, as docker run --entrypoint does; empty: the image's own; only hosts whose agent can do it"`
	Command      []string          `json:"command" doc:"in place of the image's own, after its entry point, as docker run does; empty: the image's own"`
	User         string            `json:"user,omitempty" example:"root" doc:"whom the nodes' processes and shells run as, in place of the image's USER, as docker run --user does: root, 1000, app:users; empty: the image's own; only hosts whose agent can do it"`
	Env          map[string]string `json:"env"`
	Ports        []Port            `json:"ports"`
	DiskGB       int64             `json:"disk_gb" doc:"per node"`
	DiskLimited  bool              `json:"disk_limited,omitempty" doc:"only hosts that enforce disk_gb, for this node and its neighbours"`
	ScratchGB    int64             `json:"scratch_gb,omitempty" doc:"per node: an empty file system of that size at /scratch, on a fast disk of the host, gone when the node ends or starts again; included in the price; only hosts that have it"`
	Mounts       []Mount           `json:"mounts,omitempty" doc:"volumes, which follow to whatever host the node gets, and buckets of your own; only hosts that can mount them"`
	Runtime      string            `json:"runtime,omitempty" enum:"runc,runsc" doc:"runc by default; runsc: gVisor, a kernel of its own between the program and the host's; only hosts that have it"`
	SSHKeyIDs    []id.SSHKey       `json:"ssh_key_ids"`

	MaxPricePerHour *money.Micro `json:"max_price_per_hour" doc:"for the whole cluster"`
	MaxDuration     *int64       `json:"max_duration" doc:"seconds of running time; at least 60"`
	Budget          *money.Nano  `json:"budget" doc:"the cluster shuts down cleanly before it costs more"`

	Network       SpecNetwork `json:"network"`
	Trust         string      `json:"trust,omitempty" enum:"bonded,any" doc:"whose hosts may run the ranks of one cluster. bonded, by default: hosts of several operators only if each operator has a bond that pays the others when its host fails. any: hosts without a bond too, beside operators that accept them"`
	OnNodeFailure string      `json:"on_node_failure" enum:"replace,fail,ignore"`
	Interruptible bool        `json:"interruptible" doc:"not offered yet: false"`
	Template      *string     `json:"template" doc:"not offered yet: null"`
}

// SpecNetwork is what a spec requires of the network between the nodes.
type SpecNetwork struct {
	Scope string `json:"scope" enum:"any,fabric,host"`
	// MinGbps is the least all-reduce bus bandwidth. Hosts known to be slower are not used; others are measured by the
	// preflight, before anything is billed.
	MinGbps float64 `json:"min_gbps"`
	// Fabric is "rdma" for nodes that get all RDMA ports of whole hosts in one fabric.
	Fabric string `json:"fabric,omitempty" enum:"rdma" doc:"rdma: whole hosts of one fabric, each node with the RDMA ports that its host lends; no other organisation has RDMA in the fabric meanwhile, unless partitions keep them apart (rdma_isolation)"`
	// MinBusbwGbps is the least all-reduce bandwidth over RDMA, or, where nothing was measured, of a host's ports.
	MinBusbwGbps float64 `json:"min_busbw_gbps,omitempty" doc:"with fabric: the least bandwidth over RDMA, in Gbit/s: of all-reduce where it was measured (busbw_rdma), else of a host's ports together; where the hosts measure, a start below it fails, free of charge; 0: any"`
}

// Mount is a volume or a bucket that the nodes find at a path. The last snapshot of a volume is restored before the
// command starts, unless it is lazy; a bucket, and a lazy volume, is read when it is needed.
type Mount struct {
	Path     string         `json:"path" doc:"an absolute path such as /data"`
	Volume   id.Volume      `json:"volume,omitzero" doc:"the volume's id; or bucket instead"`
	Bucket   id.Bucket      `json:"bucket,omitzero" doc:"the id of one of your own buckets, instead of a volume"`
	Shared   string         `json:"shared,omitempty" maxLength:"63" doc:"the name of a shared file system, instead of a volume: the folder of your organisation there; only hosts that have it are chosen" example:"lab-nfs"`
	Mode     string         `json:"mode,omitempty" enum:"rw,ro,ranks" doc:"rw, by default: this cluster is the volume's only writer, and has one node; ro: the last snapshot, for any number of nodes and clusters; ranks: each node writes its own copy, and snapshots contain the changes of all nodes. Of a bucket or a shared file system: rw or ro, for any number of nodes"`
	Lazy     bool           `json:"lazy,omitempty" doc:"with mode ro: the volume is mounted at once, and its files are read when they are needed"`
	CacheGB  int64          `json:"cache_gb,omitempty" doc:"how much of the host's scratch holds, for each node, what of a bucket is not uploaded yet, or what of a lazy volume was read; 1 to 500, by default 10"`
	Snapshot SnapshotPolicy `json:"snapshot" doc:"when the host takes snapshots of a volume by itself; left out: at the end and on notice"`
	Pause    string         `json:"pause,omitempty" enum:"never" doc:"never: a snapshot must not stop the program, not even for 300 ms; its files may then be of different moments"`
}

// SnapshotPolicy says when a host takes snapshots of a volume by itself.
type SnapshotPolicy struct {
	EveryS   int  `json:"every_s,omitempty" doc:"seconds between snapshots, 60 to 86400; 0: none by time"`
	OnNotice bool `json:"on_notice" doc:"when the host is about to be reclaimed"`
	OnEnd    bool `json:"on_end" doc:"when the node ends"`
}

// RegistryAuth is the credentials for a private registry. They are secret.
type RegistryAuth struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// Port is a port of the workload that can be reached.
type Port struct {
	Port     int    `json:"port"`
	Protocol string `json:"protocol"`
}

// Network is what a spec requires of the network between the nodes.
type Network struct {
	Scope   string  `json:"scope,omitempty"` // any, fabric, host
	MinGbps float64 `json:"min_gbps,omitempty"`
	// Fabric is "rdma" for the RDMA ports of whole hosts in one fabric, of at least MinBusbwGbps together per host.
	Fabric       string  `json:"fabric,omitempty"`
	MinBusbwGbps float64 `json:"min_busbw_gbps,omitempty"`
}

// Quote is an all-in price for a placement whose GPUs are claimed until it expires.
type Quote struct {
	ID             id.Quote    `json:"id"`
	State          string      `json:"state" enum:"held,rented,returned,expired"`
	ExpiresAt      time.Time   `json:"expires_at" doc:"the GPUs are held until then"`
	CreatedAt      time.Time   `json:"created_at"`
	ClusterID      *id.Cluster `json:"cluster_id" doc:"once rented"`
	Spec           ClusterSpec `json:"spec"`
	Nodes          []QuoteNode `json:"nodes"`
	PricePerHour   money.Micro `json:"price_per_hour" doc:"all-in; binds"`
	PricePerSecond money.Nano  `json:"price_per_second" doc:"for display"`
	Currency       string      `json:"currency"`
	Lines          []PriceLine `json:"lines" doc:"what the price is made of"`
}

// Estimate is the price that a cluster would have now. Nothing is claimed: others may rent the GPUs before you do.
type Estimate struct {
	Nodes          []EstimateNode `json:"nodes"`
	PricePerHour   money.Micro    `json:"price_per_hour" doc:"all-in, of the whole cluster; does not bind: a quote does"`
	PricePerSecond money.Nano     `json:"price_per_second" doc:"for display"`
	Currency       string         `json:"currency"`
}

// EstimateNode is one node of an estimate.
type EstimateNode struct {
	Rank            int         `json:"rank"`
	GPUModel        string      `json:"gpu_model"`
	GPUs            int         `json:"gpus"`
	PricePerGPUHour money.Micro `json:"price_per_gpu_hour"`
	PricePerHour    money.Micro `json:"price_per_hour" doc:"of the node"`
}

// QuoteNode is one node of a quote.
type QuoteNode struct {
	Rank         int         `json:"rank"`
	HostID       id.Host     `json:"host_id"`
	HostName     string      `json:"host_name"`
	OfferID      id.Offer    `json:"offer_id"`
	GPUModel     string      `json:"gpu_model"`
	GPUs         int         `json:"gpus"`
	PricePerHour money.Micro `json:"price_per_hour"`
}

// PriceLine is one line of a price.
type PriceLine struct {
	Kind      string      `json:"kind"` // gpu, disk, network
	Rank      int         `json:"rank"`
	Text      string      `json:"text"`
	Quantity  int64       `json:"quantity"`
	UnitPrice money.Micro `json:"unit_price"` // per hour
	Price     money.Micro `json:"price_per_hour"`
}

// PriceGuide is how other operators price a GPU model now, rented or free. It helps an operator to set a price.
type PriceGuide struct {
	GPUModel string `json:"gpu_model" doc:"name of the model" example:"NVIDIA H100 80GB HBM3"`
	Hosts    int    `json:"hosts" doc:"other operators' hosts that offer the model" example:"12"`
	GPUs     int    `json:"gpus" doc:"GPUs of these hosts" example:"96"`
	// P25, Median and P75 are quartiles of the prices of all GPUs; nil if no one else offers the model.
	P25    *money.Micro `json:"p25" doc:"a quarter of the GPUs cost this or less, per GPU-hour" example:"2.100000"`
	Median *money.Micro `json:"median" doc:"half of the GPUs cost this or less, per GPU-hour" example:"2.400000"`
	P75    *money.Micro `json:"p75" doc:"three quarters of the GPUs cost this or less, per GPU-hour" example:"2.850000"`
	Prices []PricedGPUs `json:"prices" doc:"how many GPUs are offered at each price, cheapest first"`
}

// PricedGPUs is how many GPUs are offered at one price.
type PricedGPUs struct {
	Price money.Micro `json:"price_per_gpu_hour" doc:"price per GPU-hour" example:"2.400000"`
	GPUs  int         `json:"gpus" doc:"GPUs at this price" example:"8"`
}

// Cheaper returns the percentage of the GPUs that are offered for less than a price.
func (g PriceGuide) Cheaper(than money.Micro) int {
	n := 0
	for _, p := range g.Prices {
		if p.Price < than {
			n += p.GPUs
		}
	}
	return 100 * n / max(g.GPUs, 1)
}

// OffersQuery selects offers.
type OffersQuery struct {
	PageOf
	Q    string `query:"q" maxLength:"2000" doc:"terms joined by spaces, each 'field op value' or a word of the model, region, fabric or architecture, such as: gpu_model=H100 vram_gb>=80, or: h100 eu-west"`
	Sort string `query:"sort" maxLength:"40" doc:"a field, '-' before it for descending" default:"price_per_gpu_hour"`
}

// EstimateQuery describes a cluster to price.
type EstimateQuery struct {
	Nodes       int     `query:"nodes" minimum:"1" maximum:"128" default:"1" doc:"number of nodes"`
	GPUsPerNode int     `query:"gpus_per_node" minimum:"1" maximum:"16" default:"1" doc:"GPUs of each node"`
	GPU         string  `query:"gpu" maxLength:"2000" doc:"offer query that every node must match, such as h100"`
	DiskGB      int64   `query:"disk_gb" minimum:"1" maximum:"100000" default:"10" doc:"disk of each node, in GB"`
	Scope       string  `query:"scope" enum:"any,fabric,host" default:"any" doc:"how far apart the nodes may be"`
	MinGbps     float64 `query:"min_gbps" minimum:"0" maximum:"100000" doc:"least all-reduce bandwidth between nodes, in Gbit/s"`
}

// Create creates a quote: a price whose GPUs are held for a short time.
func (s QuotesService) Create(ctx context.Context, spec Spec) (out Quote, err error) {
	err = s.c.call(ctx, http.MethodPost, path("quotes"), nil, spec, &out)
	return out, err
}
