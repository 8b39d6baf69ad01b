// Package cores assigns to a lease the processors that are nearest to its GPUs.
//
// Invariants:
//   - Every GPU of a host has a home: as many whole cores as its share of the host, near it. Homes never overlap, so
//     leases that get no more than their GPUs' share of the host never share a core.
//   - A lease gets a processor that another lease has only if no other is left.
//   - The same leases in the same order get the same processors.
//   - Unknown facts are not guessed: a lease on a GPU whose location is unknown gets no set and is limited by its
//     quota.
package cores

import (
	"cmp"
	"math"
	"slices"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/internal/agentapi"
)

// Host is where a host's processors, memory and GPUs are. With the zero value no lease gets a set.
type Host struct {
	nodes []hostinfo.Node
	gpus  map[string]int // UUID to NUMA node; -1: unknown
	cpus  []cpu
}

// cpu is one logical processor.
type cpu struct {
	id, node, core int    // core is numbered throughout the host
	home           string // UUID of the GPU whose home it belongs to, or ""
}

// Set is what a lease gets, in the kernel's list format.
type Set struct {
	CPUs   string `json:"cpus"`             // "0-13,112-125"
	Mems   string `json:"mems,omitempty"`   // NUMA nodes for its memory, the nearest first; "" = any
	Shared bool   `json:"shared,omitempty"` // another lease has some of the processors, too
}

// Map determines the layout of a host. For a host without NUMA nodes or without GPUs it returns the zero Host.
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
			node = nodes[0].ID // with a single node the kernel often reports none
		}
		h.gpus[g.UUID] = node
	}
	if most > 0 {
		h.assignNodes(gpus, len(h.cpus)/len(gpus)/most)
	}
	return h
}

// assignNodes gives every GPU a home of so many cores: first from the cores near it, then from what is left, nearest
// first.
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

// homeless returns the first core without a GPU that is nearest to a node; near: it belongs to the node itself.
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

// distance returns how far a node's memory is from another node, as reported by the firmware; unreported nodes are all
// equally far.
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

// Pick returns the set for a lease with the given GPUs, number of processors (its quota, which may be fractional) and
// memory in MB, while other leases have those in taken. ok is false if the lease gets no set: it has the whole host, or
// the location of its GPUs is unknown.
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

// foreign orders processors by home: that of one of the lease's GPUs, none, that of another GPU.
func (h *Host) foreign(c cpu, gpus []string) int {
	switch {
	case slices.Contains(gpus, c.home):
		return 0
	case c.home == "":
		return 1
	}
	return 2
}

// away returns how far a processor is from the nearest of the GPUs.
func (h *Host) away(c cpu, gpus []string) int {
	best := math.MaxInt
	for _, g := range gpus {
		best = min(best, h.distance(h.gpus[g], c.node))
	}
	return best
}

// mems returns the nodes that a lease's memory must come from: those where the lease has all GPUs, no processor
// elsewhere, and enough memory. Other leases get memory first from where they run, and then from elsewhere: if they
// were bound to a node that others use too, they could be killed while the host has free memory.
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
