package market

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// syntheticFleet is hosts of eight GPUs in fabrics, at few or at all different prices, some of them partly rented.
func syntheticFleet(hosts, fabrics, prices int) *Snapshot {
	r := rand.New(rand.NewPCG(5, 6))
	ids := make([]id.Fabric, max(fabrics, 1))
	for i := range fabrics {
		ids[i] = id.New[id.Fabric]()
	}
	models := []string{"NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA L40S"}
	s := NewSnapshot(0)
	for i := range hosts {
		f := i % len(ids)
		h := newHost(fmt.Sprintf("h%d", i), models[f%3], 8, money.Micro(1_000_000+10_000*r.IntN(prices)))
		h.Fabric = ids[f]
		s.Put(h.taken(r.IntN(9)))
	}
	return s
}

func BenchmarkPlace(b *testing.B) {
	one := func(s *Spec) { s.GPUsPerNode, s.GPU = 2, "gpu_model=H100" }
	gang := func(s *Spec) { s.Nodes, s.GPUsPerNode, s.Network.Scope = 4, 4, ScopeFabric }
	none := func(s *Spec) { s.GPUsPerNode, s.GPU = 8, "gpu_model=B200" }
	for _, c := range []struct {
		name                   string
		hosts, fabrics, prices int
		ask                    func(*Spec)
	}{
		{"one/1000/few-prices", 1000, 0, 10, one}, {"one/10000/few-prices", 10_000, 0, 10, one},
		{"one/10000/all-prices", 10_000, 0, 1 << 20, one}, {"fabric-gang/10000", 10_000, 50, 10, gang},
		{"no-capacity/10000/few-prices", 10_000, 0, 10, none}, {"no-capacity/10000/all-prices", 10_000, 0, 1 << 20, none},
	} {
		s, a := syntheticFleet(c.hosts, c.fabrics, c.prices), mustRequest(b, c.ask)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Place(s, a)
			}
		})
	}
	b.Run("put/10000", func(b *testing.B) {
		s := syntheticFleet(10_000, 50, 10)
		var hosts []*Host
		for _, e := range s.hosts {
			hosts = append(hosts, e.host)
		}
		i := 0
		for b.Loop() {
			s.Put(hosts[i%len(hosts)])
			i++
		}
	})
}
