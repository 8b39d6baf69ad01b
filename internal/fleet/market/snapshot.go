package market

import (
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Host is what a snapshot knows of one sellable host. Values in a snapshot are never changed: a change puts a new one.
type Host struct {
	ID         id.Host
	Org        id.Org
	Name       string
	Region     string
	Fabric     id.Fabric // zero: none
	FabricName string
	Simulated  bool
	MultiNode  bool // other hosts reach it directly
	Verified   bool

	CPUCores   int
	RAMMB      int64
	DiskFreeGB int64 // not promised to live leases
	// ScratchFreeGB is what new nodes can have of the host's scratch disk.
	ScratchFreeGB int64
	// DiskLimited: nodes are held to their disk_gb. Runtimes are the OCI runtimes it has, sorted and joined by spaces.
	DiskLimited bool
	Runtimes    string
	// What live leases took of the host.
	CPUTaken   float64
	RAMTakenMB int64

	Driver, CUDAMax string
	BusbwGbps       *float64 // of the fabric, measured
	NetUpMbps       *float64
	NetDownMbps     *float64
	Reliability     *float64
	Topology        *Topology // nil: not known
	GPUs            []HostGPU // present, by index
	Offers          []HostOffer
	NextExpiry      time.Time // of a quote's claim on it; zero: none. The host must be read again then
}

// HostGPU is one present GPU.
type HostGPU struct {
	GPU
	Model      string
	Arch       string
	VRAMMB     int64
	ComputeCap string
	PCIeGen    int
	NVLink     bool
	NVLinkGbps float64
	// Watts it may draw, and was made for; 0 = not known.
	PowerLimitW, PowerDefaultW int64

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

// Snapshot is a set of sellable hosts, indexed for placement. It may be changed by its owner between calls of Place; it
// is not safe for concurrent use while it changes.
type Snapshot struct {
	hosts    map[id.Host]*entry
	classes  map[facts]*class
	market   ladder                // all classes by price
	fabrics  map[id.Fabric]*fabric // those of each fabric
	models   map[string]*wordList  // interned
	supplies map[string]*supply    // by model
	// mixed are the hosts with more than one offer: the only ones where a gang on one host may mix models.
	mixed map[id.Host]*entry
	turn  int
	gangs *Gangs // nil: every gang may be formed
}

// entry is a host in a snapshot with its place in the index.
type entry struct {
	host *Host
	lots []*lot
}

// lot is one offer of one host, member of the class of its like.
type lot struct {
	entry *entry
	offer *HostOffer
	who   identity
	class *class
	at    int // index in class.lots
}

// identity names a lot: what tells apart two of one class.
type identity struct {
	offer id.Offer
	host  id.Host
	org   id.Org // of the operator
	name  string
}

// NewSnapshot returns an empty snapshot. Of hosts that are equal in everything a renter can see, turn decides which is
// taken first: replicas with different turns seldom plan for the same host.
func NewSnapshot(turn int) *Snapshot {
	if turn < 0 {
		turn = -(turn + 1)
	}
	return &Snapshot{
		hosts: map[id.Host]*entry{}, classes: map[facts]*class{}, fabrics: map[id.Fabric]*fabric{},
		models: map[string]*wordList{}, supplies: map[string]*supply{}, mixed: map[id.Host]*entry{}, turn: turn,
	}
}

// SetGangs replaces what decides which hosts may form a gang. The snapshot keeps g; the caller does not change it any
// more.
func (s *Snapshot) SetGangs(g *Gangs) { s.gangs = g }

// Len is the number of hosts.
func (s *Snapshot) Len() int { return len(s.hosts) }

// Host returns a host, or nil. The caller does not change it.
func (s *Snapshot) Host(h id.Host) *Host {
	if e := s.hosts[h]; e != nil {
		return e.host
	}
	return nil
}

// Put adds a host or replaces it. The snapshot keeps h; the caller does not change it any more.
func (s *Snapshot) Put(h *Host) {
	s.Remove(h.ID)
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

// Remove takes a host out. Removing one that is not there changes nothing.
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
}

// Take marks the GPUs and shares of a placement as taken, as its claims would.
func (s *Snapshot) Take(p Placement) {
	for _, n := range p.Nodes {
		if h := s.Host(n.Host); h != nil {
			s.Put(h.without(n))
		}
	}
}

// without is the host once n is claimed.
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

// share is what of the host's CPU cores and memory goes with n of its GPUs: the same part, memory after what the host
// itself needs.
func (h *Host) share(n int) (cores float64, ramMB int64) {
	total := int64(len(h.GPUs))
	if total == 0 {
		return 0, 0
	}
	milli := int64(h.CPUCores) * 1000 * int64(n) / total
	return float64(milli) / 1000, h.sellableRAMMB() * int64(n) / total
}

// sellableRAMMB leaves the host 1 GiB and a fiftieth for its kernel, its agent and Docker.
func (h *Host) sellableRAMMB() int64 { return max(0, h.RAMMB-h.RAMMB/50-1024) }
