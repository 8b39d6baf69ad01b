package placement

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/fleet/market/demand"
)

// firstFit takes the first host that fits.
type firstFit struct{}

func (firstFit) score(s *demand.State, q *demand.Request) (float64, *demand.State) {
	return 0, s.After(q, s.Tightest(q))
}

// bestFit takes the host with the least left of CPU and GPU together, each measured by the largest host's.
type bestFit struct{}

func (bestFit) score(s *demand.State, q *demand.Request) (float64, *demand.State) {
	const maxCPU, maxGPU = 128_000, 8 * demand.Whole
	left := float64(s.CPU-q.CPU)/maxCPU/2 + float64(s.Free()-q.GPU())/maxGPU/2
	return -left, s.After(q, s.Tightest(q))
}

// fgd is fragmentation gradient descent (Weng et al., "Beware of Fragmentation", USENIX ATC 2023): it takes the host,
// and of a shared GPU the device, on which the GPU capacity that a typical request could not use grows least. Typical
// requests, scores and their rounding are those of the authors' artefact; its published figures are reproduced within a
// few tenths of a percent.
type fgd struct {
	typical []demand.Kind
	known   map[*demand.State]float64
}

func newFGD(requests []demand.Request) *fgd {
	return &fgd{typicalOf(requests), map[*demand.State]float64{}}
}

// typicalOf returns the most frequent kinds of requests that together are 95 % of the workload. FGD does not
// distinguish requests by memory.
func typicalOf(requests []demand.Request) []demand.Kind {
	plain := slices.Clone(requests)
	for i := range plain {
		plain[i].Mem = 0
	}
	kinds := demandOf(plain)
	slices.SortFunc(kinds, func(a, b demand.Kind) int {
		return cmp.Or(cmp.Compare(b.Part, a.Part), cmp.Compare(b.GPU(), a.GPU()), cmp.Compare(b.CPU, a.CPU),
			strings.Compare(a.Models, b.Models))
	})
	sum := 0.0
	for i := range kinds {
		if sum += kinds[i].Part; sum >= 0.95 {
			kinds = kinds[:i+1]
			break
		}
	}
	for i := range kinds {
		kinds[i].Part /= sum
	}
	return kinds
}

func (g *fgd) score(s *demand.State, q *demand.Request) (float64, *demand.State) {
	before := g.fragment(s)
	if q.GPUs != 1 || q.Milli == demand.Whole {
		after := s.After(q, s.Tightest(q))
		return rounded(before - g.fragment(after)), after
	}
	best, to := -1.0, (*demand.State)(nil)
	for i, left := range s.Left {
		if left < q.Milli || i > 0 && left == s.Left[i-1] {
			continue
		}
		after := s.After(q, i)
		if score := rounded(before - g.fragment(after)); score > best {
			best, to = score, after
		}
	}
	return best, to
}

// rounded is a gain as the artefact scores it: a whole number from 0 to 100.
func rounded(gain float64) float64 { return math.Floor(100 / (1 + math.Exp(-gain/1000))) }

// fragment is the GPU capacity left in the state that the next request, drawn from the typical ones, cannot use.
func (g *fgd) fragment(s *demand.State) float64 {
	if v, ok := g.known[s]; ok {
		return v
	}
	sum := 0.0
	roomy := *s
	roomy.Mem = math.MaxInt64 // not looked at
	for i := range g.typical {
		t := &g.typical[i]
		unusable := s.Free()
		if t.GPUs > 0 && roomy.Fits(&t.Request) {
			unusable = 0
			for _, left := range s.Left {
				if left < t.Milli {
					unusable += left
				}
			}
		}
		sum += t.Part * float64(unusable)
	}
	g.known[s] = sum
	return sum
}
