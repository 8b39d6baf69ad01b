package placement

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/fleet/market/demand"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// pricePoints is at how many prices a model is offered: operators follow each other.
const pricePoints = 20

// newSnapshot lists copies of the data set's fleet as the market sees it: the same machines, each model around a price
// of its own.
func newSnapshot(machines []Machine, copies int, r *rand.Rand) *market.Snapshot {
	base := map[string]money.Micro{}
	s := market.NewSnapshot(0)
	for c := range copies {
		for _, m := range machines {
			if base[m.Model] == 0 {
				base[m.Model] = money.Micro(500_000 + 250_000*len(base))
			}
			price := base[m.Model] + money.Micro(10_000*r.IntN(pricePoints))
			s.Put(newHost(fmt.Sprintf("%s-%d", m.Name, c), m.Model, m.GPUs, price, id.Fabric{}, int(m.CPU/1000), m.Mem))
		}
	}
	return s
}

func newHost(name, model string, gpus int, price money.Micro, fabric id.Fabric, cores int, ramMB int64) *market.Host {
	h := &market.Host{
		ID:         id.New[id.Host](),
		Name:       name,
		Region:     "eu",
		Fabric:     fabric,
		MultiNode:  true,
		CPUCores:   cores,
		RAMMB:      ramMB,
		DiskFreeGB: 1 << 20,
		Offers: []market.HostOffer{{
			ID:           id.New[id.Offer](),
			Model:        model,
			Price:        price,
			MinGPUs:      1,
			HostSharePPM: 850_000,
		}},
	}
	for i := range gpus {
		h.GPUs = append(h.GPUs, market.HostGPU{
			GPU:    market.GPU{ID: id.New[id.GPU](), UUID: fmt.Sprintf("GPU-%s-%d", name, i), Index: i},
			Model:  model,
			VRAMMB: 81559,
			Free:   true,
		})
	}
	return h
}

// requestOf is a request of the data set as a renter would write it: a part of a GPU is a whole one, and a request for
// none is nothing to a GPU market.
func requestOf(q *demand.Request) (market.Request, bool) {
	if q.GPUs == 0 {
		return market.Request{}, false
	}
	spec := market.DefaultSpec()
	spec.GPUsPerNode = q.GPUs
	if q.Models != "" {
		spec.GPU = "gpu_model in [" + strings.ReplaceAll(q.Models, "|", ",") + "]"
	}
	a, err := spec.Request(id.Org{})
	return a, err == nil
}

// running is what was placed and has not ended.
type running struct {
	snapshot *market.Snapshot
	placed   []market.Placement
	gpus     int
}

// add takes the placement.
func (r *running) add(p market.Placement) {
	r.snapshot.Take(p)
	r.placed = append(r.placed, p)
	for _, n := range p.Nodes {
		r.gpus += len(n.GPUs)
	}
}

// end gives one placement back, drawn at random.
func (r *running) end(random *rand.Rand) {
	i := random.IntN(len(r.placed))
	p := r.placed[i]
	last := len(r.placed) - 1
	r.placed[i] = r.placed[last]
	r.placed = r.placed[:last]
	for _, n := range p.Nodes {
		h := *r.snapshot.Host(n.Host)
		h.GPUs = append([]market.HostGPU(nil), h.GPUs...)
		for _, g := range n.GPUs {
			h.GPUs[g.Index].Free = true
		}
		h.CPUTaken -= n.CPUCores
		h.RAMTakenMB -= n.RAMMB
		h.DiskFreeGB += n.DiskGB
		r.snapshot.Put(&h)
		r.gpus -= len(n.GPUs)
	}
}
