// Package cores gives a lease the processors that are nearest to its GPUs.
//
// What always holds:
//   - Every GPU of a host has a home: as many whole cores as are its part of the host, near it. Homes never overlap, so
//     leases that get no more than their GPUs' part of the host never share a core.
//   - A lease gets a processor that another lease has only when no other is left.
//   - The same leases, come in the same order, get the same processors.
//   - What is not known is not guessed: a lease on a GPU whose place is not known gets none, and is held by its quota.
package cores

import (
	"cmp"
	"math"
	"slices"

	"github.com/musterhq/muster/agent/hostinfo"
	"github.com/musterhq/muster/internal/agentapi"
)

// Host is where a host's processors, memory and GPUs are. The zero value knows nothing: no lease gets a set.
type Host struct {
	nodes []hostinfo.Node
	gpus  map[string]int // UUID to NUMA node, -1: not told
	cpus  []cpu
}

// cpu is one logical processor.
type cpu struct {
	id, node, core int    // core counts through the host
	home           string // UUID of the GPU it is at home with, "" = of none
}

// Set is what a lease gets, in the kernel's lists.
type Set struct {
	CPUs   string `json:"cpus"`             // "0-13,112-125"
	Mems   string `json:"mems,omitempty"`   // NUMA nodes its memory must come from, "" = any, the nearest first
	Shared bool   `json:"shared,omitempty"` // some of the processors are another lease's as well
}

// Map lays out a host. One without NUMA nodes, or without GPUs, is the zero Host.
func Map(nodes []hostinfo.Node, gpus []agentapi.GPU) Host {
	if len(nodes) == 0 || len(gpus) == 0 {
		return Host{}
	}
	h := Host{nodes: nodes, gpus: map[string]int{}}
	most, core := 0, 0
	for _, n := range nodes {
		for _, threads := range n.Cores {
			for _, id := range threads {
				h.cpus = append(h.cpus, cpu{id: id, node: n.ID, core: core})
			}
			most = max(most, len(threads))
			core++
		}
	}
	gpus = slices.Clone(gpus)
	slices.SortFunc(gpus, func(a, b agentapi.GPU) int {
		return cmp.Or(cmp.Compare(a.PCIBus, b.PCIBus), cmp.Compare(a.UUID, b.UUID))
	})
	for _, g := range gpus {
		node := g.NUMANode.Or(-1)
		if !slices.ContainsFunc(nodes, func(n hostinfo.Node) bool { return n.ID == node }) {
			node = -1
		}
		if len(nodes) == 1 {
			node = nodes[0].ID // where there is one, the kernel often tells none
		}
		h.gpus[g.UUID] = node
	}
	if most > 0 {
		h.assignNodes(gpus, len(h.cpus)/len(gpus)/most)
	}
	return h
}

// assignNodes gives every GPU a home of so many cores: all of them near it first, then what is left, nearest first.
func (h *Host) assignNodes(gpus []agentapi.GPU, each int) {
	got := map[string]int{}
	for _, near := range []bool{true, false} {
		for _, g := range gpus {
			for got[g.UUID] < each {
				core, ok := h.homeless(h.gpus[g.UUID], near)
				if !ok {
					break
				}
				for i := range h.cpus {
					if h.cpus[i].core == core {
						h.cpus[i].home = g.UUID
					}
				}
				got[g.UUID]++
			}
		}
	}
}

// homeless is the first core without a GPU that is nearest to a node; near: of the node itself.
func (h *Host) homeless(node int, near bool) (core int, ok bool) {
	best := math.MaxInt
	for _, c := range h.cpus {
		if c.home != "" || near && c.node != node {
			continue
		}
		if d := h.distance(node, c.node); d < best {
			best, core, ok = d, c.core, true
		}
	}
	return core, ok
}

// distance is how far a node's memory is from another, by the firmware's word; nodes that are not told are all as far.
func (h *Host) distance(from, to int) int {
	const own, other = 10, 20
	i := slices.IndexFunc(h.nodes, func(n hostinfo.Node) bool { return n.ID == from })
	j := slices.IndexFunc(h.nodes, func(n hostinfo.Node) bool { return n.ID == to })
	switch {
	case i < 0 || j < 0:
		return other
	case j < len(h.nodes[i].Distances):
		return h.nodes[i].Distances[j]
	case i == j:
		return own
	}
	return other
}

// Pick is the set of a lease that gets GPUs, a number of processors (which may be fractional: its quota) and memory in
// MB, when other leases have those in taken. ok is false for a lease that is to have none: it gets the whole host, or
// where its GPUs are is not known.
func (h Host) Pick(gpus []string, vcpus float64, ramMB int64, taken []Set) (s Set, ok bool) {
	want := int(math.Ceil(vcpus - 1e-9))
	if len(gpus) == 0 || want < 1 || want >= len(h.cpus) {
		return Set{}, false
	}
	for _, g := range gpus {
		if node, known := h.gpus[g]; !known || node < 0 {
			return Set{}, false
		}
	}
	others := map[int]bool{}
	for _, t := range taken {
		list, _ := hostinfo.ParseList(t.CPUs)
		for _, c := range list {
			others[c] = true
		}
	}
	all := slices.Clone(h.cpus)
	slices.SortStableFunc(all, func(a, b cpu) int {
		return cmp.Or(cmp.Compare(flag(others[a.id]), flag(others[b.id])),
			cmp.Compare(h.foreign(a, gpus), h.foreign(b, gpus)),
			cmp.Compare(h.away(a, gpus), h.away(b, gpus)), cmp.Compare(a.core, b.core), cmp.Compare(a.id, b.id))
	})
	all = all[:want]
	var ids []int
	for _, c := range all {
		ids = append(ids, c.id)
		s.Shared = s.Shared || others[c.id]
	}
	slices.Sort(ids)
	s.CPUs, s.Mems = hostinfo.FormatList(ids), h.mems(all, gpus, ramMB)
	return s, true
}

// foreign orders processors by whose home they are: a GPU's of the lease, nobody's, another GPU's.
func (h *Host) foreign(c cpu, gpus []string) int {
	switch {
	case slices.Contains(gpus, c.home):
		return 0
	case c.home == "":
		return 1
	}
	return 2
}

// away is how far a processor is from the nearest of the GPUs.
func (h *Host) away(c cpu, gpus []string) int {
	best := math.MaxInt
	for _, g := range gpus {
		best = min(best, h.distance(h.gpus[g], c.node))
	}
	return best
}

// mems are the nodes that a lease's memory must come from: where the lease has all of their GPUs, no processor
// elsewhere, and room. Anybody else gets memory from where it runs first, and from elsewhere before it runs out: bound
// to a node that others use too, it could be killed while the host has memory left.
func (h *Host) mems(cpus []cpu, gpus []string, ramMB int64) string {
	mine := map[int]bool{}
	for _, g := range gpus {
		mine[h.gpus[g]] = true
	}
	for uuid, node := range h.gpus {
		if (node < 0 || mine[node]) && !slices.Contains(gpus, uuid) {
			return ""
		}
	}
	if slices.ContainsFunc(cpus, func(c cpu) bool { return !mine[c.node] }) {
		return ""
	}
	var nodes []int
	room := int64(0)
	for _, n := range h.nodes {
		if mine[n.ID] {
			nodes = append(nodes, n.ID)
			room += n.MemoryMB
		}
	}
	if ramMB <= 0 || ramMB > room-room/64 || len(nodes) == len(h.nodes) {
		return ""
	}
	return hostinfo.FormatList(nodes)
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}
