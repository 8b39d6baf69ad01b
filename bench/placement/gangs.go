package placement

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

const (
	gangHosts   = 5000
	gangFabrics = 50
	gangNodes   = 4
	// publishedPods is how many pods a second Kubernetes places in gangs that must share a topology domain, on 5,000
	// nodes, as its maintainers publish it.
	publishedPods = 600
)

// Gangs measures goal 4: 4-node gangs, each inside one fabric, placed and taken in memory, until the fleet is full.
func Gangs(ctx context.Context) ([]table.Row, error) {
	var rates []float64
	for round := range rounds {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		rate, err := fillWithGangs(uint64(round))
		if err != nil {
			return nil, err
		}
		rates = append(rates, rate)
	}
	r := table.Row{
		Goal:         4,
		Name:         "nodes placed in 4-node gangs, 5,000 hosts, 50 fabrics",
		Unit:         "/s",
		Ours:         table.Median(rates),
		Baseline:     publishedPods,
		BaselineName: "Kubernetes topology gangs, published",
		Want:         "≥ 50, every gang in one fabric",
		Details:      rates,
	}
	r.Ratio = r.Ours / r.Baseline
	r.Met = r.Ratio >= 50
	return []table.Row{r}, nil
}

// fillWithGangs returns the nodes placed per second. A gang outside one fabric, or one refused while a fabric still had
// room for it, is an error.
func fillWithGangs(seed uint64) (perSecond float64, err error) {
	random := rand.New(rand.NewPCG(seed, 5))
	s := market.NewSnapshot(0)
	fabrics := make([]id.Fabric, gangFabrics)
	for i := range fabrics {
		fabrics[i] = id.New[id.Fabric]()
	}
	for i := range gangHosts {
		f := i % gangFabrics
		price := money.Micro(2_000_000 + 10_000*(f%10) + 1000*random.IntN(5))
		s.Put(newHost(fmt.Sprintf("h%d", i), "NVIDIA H100 80GB HBM3", 8, price, fabrics[f], 192, 2<<20))
	}
	asks := make([]market.Request, 0, 4)
	for _, gpus := range []int{1, 2, 4, 8} {
		spec := market.DefaultSpec()
		spec.Nodes, spec.GPUsPerNode, spec.Network.Scope, spec.GPU = gangNodes, gpus, market.ScopeFabric, "gpu_model=H100"
		a, err := spec.Request(id.Org{})
		if err != nil {
			return 0, err
		}
		asks = append(asks, a)
	}
	runtime.GC()
	placed := 0
	start := time.Now()
	for {
		p, _ := market.Place(s, asks[random.IntN(len(asks))])
		if len(p.Nodes) == 0 {
			break
		}
		for _, n := range p.Nodes {
			if n.Fabric != p.Nodes[0].Fabric || n.Fabric.IsZero() {
				return 0, fmt.Errorf("a gang of %s and %s is not inside one fabric", p.Nodes[0].Fabric, n.Fabric)
			}
		}
		s.Take(p)
		placed += len(p.Nodes)
	}
	return float64(placed) / time.Since(start).Seconds(), nil
}
