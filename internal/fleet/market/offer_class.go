package market

import (
	"cmp"
	"math"
	"slices"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// facts is everything about an offer that queries, constraints and tie-breaks use. It is comparable: offers with equal
// facts are interchangeable and form a class, so the cost of a decision grows with the number of different offers and
// not with the number of hosts.
type facts struct {
	model, arch, computeCap, cudaMax, driver string
	vendor, kind, rocmMax                    string
	modelWords                               *wordList // interned per snapshot
	vramGB                                   int64
	nvlink                                   bool
	nvlinkGbps                               float64
	powerLimitW, powerDefaultW               int64 // 0 = not known
	pcieGen                                  int
	pcieMeasured                             bool   // of all GPUs
	degraded                                 string // of the first GPU that is
	degradedGPUs                             int
	display                                  bool // of at least one GPU
	region, fabricName                       string
	fabric                                   id.Fabric
	busbwGbps, netUpMbps, netDownMbps        maybe
	rdmaGbps                                 float64
	busbwRDMA                                maybe
	busbwNVLink                              float64 // 0 = not measured, of all GPUs
	rdmaRails                                int
	rdmaLink, isolation                      string
	reliability                              maybe
	verified, simulated, multiNode           bool

	price       money.Micro
	minGPUs     int
	maxDuration int64 // 0 = no limit

	free, total         int   // GPUs of the offer
	hostFree, hostTotal int   // GPUs of the whole host, without slices in hostTotal
	part                int64 // of a GPU, in thousandths, that one of the offer's is
	cpuCores            int
	ramMB               int64
	cpuLeft             float64
	ramLeftMB           int64
	diskFreeGB          int64
	diskLimited         bool
	entrypoint          bool
	users               bool
	volumes             bool
	volumeRanks         bool
	buckets             bool
	lazyVolumes         bool
	shared              string // words
	scratchFreeGB       int64
	runtimes            string // words
}

// maybe is a number that may be unknown. NaN counts as unknown.
type maybe struct {
	v     float64
	known bool
}

func maybeOf(p *float64) maybe {
	if p == nil || math.IsNaN(*p) {
		return maybe{}
	}
	return maybe{*p, true}
}

// wordList is the words of a model's name, shared by all offers of the model.
type wordList struct{ list []string }

// longest returns the longest rental that the offer allows, in seconds.
func (f *facts) longest() float64 {
	if f.maxDuration == 0 {
		return math.Inf(1)
	}
	return float64(f.maxDuration)
}

// gibibytes rounds MiB of memory to nearest, for GPUs and for hosts: a GPU with 81559 MiB is an "80 GB" GPU.
func gibibytes(mb int64) int64 { return (mb + 512) / 1024 }

// twoDigits rounds a measurement down to two digits: equal hosts then have equal facts, though no two measure the same.
func twoDigits(v float64) float64 {
	if v < 1 {
		return 0
	}
	unit := max(1, math.Pow10(int(math.Log10(v))-1))
	return math.Floor(v/unit) * unit
}

func (s *Snapshot) factsOf(h *Host, o *HostOffer) facts {
	w := s.models[o.Model]
	if w == nil {
		w = &wordList{query.Words(o.Model)}
		s.models[o.Model] = w
	}
	f := facts{
		model:         o.Model,
		modelWords:    w,
		cudaMax:       h.CUDAMax,
		driver:        h.Driver,
		region:        h.Region,
		fabric:        h.Fabric,
		fabricName:    h.FabricName,
		busbwGbps:     maybeOf(h.BusbwGbps),
		rdmaGbps:      h.RDMAGbps,
		busbwRDMA:     maybeOf(h.RDMABusbwGbps),
		rdmaRails:     h.RDMARails,
		rdmaLink:      h.RDMALink,
		isolation:     h.RDMAIsolation,
		netUpMbps:     maybeOf(h.NetUpMbps),
		netDownMbps:   maybeOf(h.NetDownMbps),
		reliability:   maybeOf(h.Reliability),
		verified:      h.Verified,
		simulated:     h.Simulated,
		multiNode:     h.MultiNode,
		price:         o.Price,
		minGPUs:       o.MinGPUs,
		maxDuration:   o.MaxDuration,
		hostTotal:     h.whole(),
		part:          h.part(o.Model),
		cpuCores:      h.CPUCores,
		ramMB:         h.RAMMB,
		cpuLeft:       float64(h.CPUCores) - h.CPUTaken,
		ramLeftMB:     h.sellableRAMMB() - h.RAMTakenMB,
		diskFreeGB:    h.DiskFreeGB,
		diskLimited:   h.DiskLimited,
		entrypoint:    h.Entrypoint,
		users:         h.Users,
		volumes:       h.Volumes,
		volumeRanks:   h.VolumeRanks,
		buckets:       h.Buckets,
		lazyVolumes:   h.LazyVolumes,
		shared:        h.Shared,
		scratchFreeGB: max(0, h.ScratchFreeGB),
		runtimes:      h.Runtimes,
	}
	inHive := false
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.Free {
			f.hostFree++
		}
		if g.Model != o.Model {
			continue
		}
		if f.total == 0 {
			f.vendor, f.kind, f.rocmMax = g.Vendor, g.Kind, g.ROCmMax
			if g.Vendor == agentapi.AMD {
				f.cudaMax, f.driver = "", "" // a host's are NVIDIA's
			}
			f.arch, f.computeCap, f.vramGB, f.pcieGen = g.Arch, g.ComputeCap, gibibytes(g.VRAMMB), g.PCIeGen
			f.nvlink, f.nvlinkGbps, f.powerLimitW, f.powerDefaultW = g.NVLink, g.NVLinkGbps, g.PowerLimitW, g.PowerDefaultW
			f.pcieMeasured, f.busbwNVLink = g.PCIeMeasured, twoDigits(g.BusbwNVLink)
		}
		f.total++
		if g.Degraded != "" {
			f.degraded, f.degradedGPUs = cmp.Or(f.degraded, g.Degraded), f.degradedGPUs+1
		}
		f.display = f.display || g.Display
		inHive = inHive || g.Hive != ""
		if g.Free {
			f.free++
		}
		// The weakest GPU determines the offer's facts, so that a renter never gets less than what is listed.
		if query.CompareVersions(g.ROCmMax, f.rocmMax) < 0 {
			f.rocmMax = g.ROCmMax
		}
		f.vramGB = min(f.vramGB, gibibytes(g.VRAMMB))
		f.pcieGen, f.pcieMeasured = min(f.pcieGen, g.PCIeGen), f.pcieMeasured && g.PCIeMeasured
		f.nvlink = f.nvlink && g.NVLink
		f.nvlinkGbps = min(f.nvlinkGbps, g.NVLinkGbps)
		f.busbwNVLink = min(f.busbwNVLink, twoDigits(g.BusbwNVLink))
		// If the value of one GPU is unknown (0), the offer's is unknown.
		f.powerLimitW, f.powerDefaultW = min(f.powerLimitW, g.PowerLimitW), min(f.powerDefaultW, g.PowerDefaultW)
	}
	if inHive { // a reset of one GPU would end the leases of the others
		f.minGPUs = max(f.minGPUs, f.total)
	}
	return f
}

// class is a set of lots with equal facts.
type class struct {
	facts
	supply *supply // supply of its model
	lots   []*lot
	at     [2]int // index in its rung of the market's and of the fabric's ladder
}

// fabric is the classes of one fabric.
type fabric struct {
	ladder ladder
	free   int // free GPUs of all its offers
}

func (s *Snapshot) classify(l *lot, f facts) {
	c := s.classes[f]
	if c == nil {
		c = &class{facts: f, supply: s.supplyOf(f.model)}
		s.classes[f] = c
		s.market.add(c, 0)
		if !f.fabric.IsZero() {
			fab := s.fabrics[f.fabric]
			if fab == nil {
				fab = &fabric{}
				s.fabrics[f.fabric] = fab
			}
			fab.ladder.add(c, 1)
		}
	}
	l.class, l.at = c, len(c.lots)
	c.lots = append(c.lots, l)
	c.supply.count(f.free, true)
	if fab := s.fabrics[f.fabric]; fab != nil {
		fab.free += f.free
	}
}

func (s *Snapshot) supplyOf(model string) *supply {
	if s.supplies[model] == nil {
		s.supplies[model] = newSupply(model)
	}
	return s.supplies[model]
}

func (s *Snapshot) declassify(l *lot) {
	c := l.class
	last := c.lots[len(c.lots)-1]
	c.lots[l.at], last.at = last, l.at
	c.lots = c.lots[:len(c.lots)-1]
	c.supply.count(c.free, false)
	fab := s.fabrics[c.fabric]
	if fab != nil {
		fab.free -= c.free
	}
	if len(c.lots) > 0 {
		return
	}
	delete(s.classes, c.facts)
	s.market.remove(c, 0)
	if fab != nil {
		fab.ladder.remove(c, 1)
		if len(fab.ladder.rungs) == 0 {
			delete(s.fabrics, c.fabric)
		}
	}
}

// ladder is a list of rungs in ascending order of price.
type ladder struct{ rungs []*rung }

// rung is the classes of one price.
type rung struct {
	price   money.Micro
	classes []*class
}

func (l *ladder) find(price money.Micro) (int, bool) {
	return slices.BinarySearchFunc(l.rungs, price, func(r *rung, p money.Micro) int { return cmp.Compare(r.price, p) })
}

// add adds c to its rung. which is the index in c.at of this ladder: 0 for the market's, 1 for a fabric's.
func (l *ladder) add(c *class, which int) {
	i, ok := l.find(c.price)
	if !ok {
		l.rungs = slices.Insert(l.rungs, i, &rung{price: c.price})
	}
	r := l.rungs[i]
	c.at[which] = len(r.classes)
	r.classes = append(r.classes, c)
}

func (l *ladder) remove(c *class, which int) {
	i, _ := l.find(c.price)
	r := l.rungs[i]
	last := r.classes[len(r.classes)-1]
	r.classes[c.at[which]], last.at[which] = last, c.at[which]
	r.classes = r.classes[:len(r.classes)-1]
	if len(r.classes) == 0 {
		l.rungs = slices.Delete(l.rungs, i, i+1)
	}
}
