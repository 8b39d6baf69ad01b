package market

import (
	"slices"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Host is one sellable host in a snapshot. It is immutable: to change it, put a new one.
type Host struct {
	ID         id.Host
	Org        id.Org
	Name       string
	Region     string
	Fabric     id.Fabric // zero = none
	FabricName string
	Simulated  bool
	MultiNode  bool // other hosts can reach it directly
	Verified   bool

	CPUCores   int
	RAMMB      int64
	DiskFreeGB int64 // not used by live leases or held quotes
	// ScratchFreeGB is the scratch disk space that is available for new nodes.
	ScratchFreeGB int64
	// DiskLimited means that the host enforces disk_gb. Runtimes are the host's OCI runtimes, sorted and separated by
	// spaces.
	DiskLimited bool
	Runtimes    string
	Entrypoint  bool   // its agent can replace an image's entry point
	Users       bool   // its agent can run a node as another user than its image's
	Volumes     bool   // it can mount volumes
	VolumeRanks bool   // also those that every rank writes
	Buckets     bool   // it can mount renters' buckets
	LazyVolumes bool   // it can mount volumes that are read on demand
	Shared      string // names of the shared file systems that it has, sorted and separated by spaces
	// CPU cores and memory that live leases and held quotes use.
	CPUTaken   float64
	RAMTakenMB int64

	Driver, CUDAMax string
	BusbwGbps       *float64 // measured bandwidth of the fabric
	RDMAGbps        float64  // of the RDMA ports that the operator lends and that are up; 0 = none
	RDMARails       int      // how many those are
	RDMABusbwGbps   *float64 // measured with NCCL over these ports; nil: not lately
	RDMALink        string   // what they are; "": not known
	RDMAIsolation   string   // what keeps tenants of the fabric apart
	NetUpMbps       *float64
	NetDownMbps     *float64
	Reliability     *float64
	Topology        *Topology // nil = unknown
	GPUs            []HostGPU // present GPUs, sorted by index
	Offers          []HostOffer
	NextExpiry      time.Time // next expiry of a quote's claim on it, when it must be read again; zero = none
}

// HostGPU is one present GPU.
type HostGPU struct {
	GPU
	// Vendor and Kind are agentapi's constants. Parent is the GPU that a slice is part of, ROCmMax the newest ROCm that
	// the driver runs, and Hive names the GPUs that a reset of one resets; "" = none.
	Vendor, Kind, ROCmMax, Hive string
	Parent                      id.GPU
	Model                       string
	Arch                        string
	VRAMMB                      int64
	ComputeCap                  string
	PCIeGen                     int
	NVLink                      bool
	NVLinkGbps                  float64
	BusbwNVLink                 float64 // measured, Gbit/s; 0 = it was not
	// Power limit and default power limit in watts; 0 = unknown.
	PowerLimitW, PowerDefaultW int64
	Degraded                   string // why it is slower than it could be, and since when; "" = it is not
	PCIeMeasured               bool   // PCIeGen is what the link was under load
	Display                    bool   // a display uses it: long kernels are ended

	Free bool // healthy, unclaimed, and not in use by its owner
}

// HostOffer is a priced offer of a host.
type HostOffer struct {
	ID           id.Offer
	Model        string
	Price        money.Micro // per GPU-hour
	MinGPUs      int
	MaxDuration  int64 // seconds; 0 = no limit
	HostSharePPM int
}

// Snapshot is a set of sellable hosts, indexed for placement. Its owner may change it between calls of Place. It is not
// safe for concurrent use while it changes.
type Snapshot struct {
	hosts    map[id.Host]*entry
	classes  map[facts]*class
	market   ladder                // all classes by price
	fabrics  map[id.Fabric]*fabric // the classes of each fabric
	models   map[string]*wordList  // interned
	supplies map[string]*supply    // by model
	// mixed are the hosts with several offers. Only on these may a gang on one host use several models.
	mixed   map[id.Host]*entry
	turn    int
	gangs   *Gangs // nil = every gang may be formed
	version int64  // rises with every change
	pages   pageCache
}

// entry is a host in a snapshot with its lots.
type entry struct {
	host *Host
	lots []*lot
}

// lot is one offer of one host. It belongs to the class of offers with equal facts.
type lot struct {
	entry *entry
	offer *HostOffer
	who   identity
	class *class
	at    int // index in class.lots
}

// identity distinguishes the lots of one class.
type identity struct {
	offer id.Offer
	host  id.Host
	org   id.Org // the operator's
	name  string
}

// NewSnapshot returns an empty snapshot. turn determines which of several equal hosts Place chooses first: replicas
// with different turns seldom plan for the same host.
func NewSnapshot(turn int) *Snapshot {
	if turn < 0 {
		turn = -(turn + 1)
	}
	return &Snapshot{
		hosts: map[id.Host]*entry{}, classes: map[facts]*class{}, fabrics: map[id.Fabric]*fabric{},
		models: map[string]*wordList{}, supplies: map[string]*supply{}, mixed: map[id.Host]*entry{}, turn: turn,
	}
}

// SetGangs replaces the facts that decide which hosts may form a gang. The caller must not modify g afterwards.
func (s *Snapshot) SetGangs(g *Gangs) {
	s.gangs = g
	s.version++
}

// Len returns the number of hosts.
func (s *Snapshot) Len() int { return len(s.hosts) }

// Host returns a host, or nil. The caller must not modify it.
func (s *Snapshot) Host(h id.Host) *Host {
	if e := s.hosts[h]; e != nil {
		return e.host
	}
	return nil
}

// Put adds or replaces a host. The caller must not modify h afterwards.
func (s *Snapshot) Put(h *Host) {
	s.Remove(h.ID)
	s.version++
	e := &entry{host: h}
	s.hosts[h.ID] = e
	for i := range h.Offers {
		l := &lot{entry: e, offer: &h.Offers[i], who: identity{h.Offers[i].ID, h.ID, h.Org, h.Name}}
		s.classify(l, s.factsOf(h, l.offer))
		e.lots = append(e.lots, l)
	}
	if len(e.lots) > 1 {
		s.mixed[h.ID] = e
	}
}

// Remove removes a host. It is no error if there is no such host.
func (s *Snapshot) Remove(h id.Host) {
	e := s.hosts[h]
	if e == nil {
		return
	}
	for _, l := range e.lots {
		s.declassify(l)
	}
	delete(s.hosts, h)
	delete(s.mixed, h)
	s.version++
}

// Take marks the GPUs and shares of a placement as taken, as its claims would.
func (s *Snapshot) Take(p Placement) {
	for _, n := range p.Nodes {
		if h := s.Host(n.Host); h != nil {
			s.Put(h.without(n))
		}
	}
}

// without returns the host's state after n is claimed.
func (h *Host) without(n Placed) *Host {
	left := *h
	left.GPUs = append([]HostGPU(nil), h.GPUs...)
	for _, g := range n.GPUs {
		for i := range left.GPUs {
			if left.GPUs[i].ID == g.ID {
				left.GPUs[i].Free = false
			}
		}
	}
	left.CPUTaken += n.CPUCores
	left.RAMTakenMB += n.RAMMB
	left.DiskFreeGB -= n.DiskGB
	left.ScratchFreeGB -= n.ScratchGB
	return &left
}

// share returns the CPU cores and memory that n of the host's GPUs of a model come with: the same fraction of the
// host's, after subtracting the memory that the host itself needs.
func (h *Host) share(model string, n int) (cores float64, ramMB int64) {
	total, parts := oneGPU*int64(h.whole()), int64(n)*h.part(model)
	if total == 0 {
		return 0, 0
	}
	milli := int64(h.CPUCores) * 1000 * parts / total
	return float64(milli) / 1000, h.sellableRAMMB() * parts / total
}

// oneGPU is a whole GPU in the unit of shares.
const oneGPU = 1000

// whole returns the number of GPUs of the host, which slices are parts of.
func (h *Host) whole() int {
	n := 0
	for i := range h.GPUs {
		if h.GPUs[i].Kind != agentapi.KindSlice {
			n++
		}
	}
	return n
}

// slicesOf reports whether the host's GPUs of a model are slices.
func (h *Host) slicesOf(model string) bool {
	return slices.ContainsFunc(h.GPUs, func(g HostGPU) bool { return g.Model == model && g.Kind == agentapi.KindSlice })
}

// part returns what part of a GPU one GPU of the model is, in thousandths: for a slice, the part of the GPU's memory
// that it has. Of slices with the same model it is the smallest.
func (h *Host) part(model string) int64 {
	part := int64(oneGPU)
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.Model != model || g.Kind != agentapi.KindSlice {
			continue
		}
		for j := range h.GPUs {
			if w := &h.GPUs[j]; w.ID == g.Parent && w.VRAMMB > 0 {
				part = min(part, oneGPU*g.VRAMMB/w.VRAMMB)
			}
		}
	}
	return part
}

// sellableRAMMB returns the memory without 1 GiB and 2 %, which are reserved for the kernel, the agent and Docker.
func (h *Host) sellableRAMMB() int64 { return max(0, h.RAMMB-h.RAMMB/50-1024) }
