package hostinfo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
)

// Node is one NUMA node: processors, and the memory near them.
type Node struct {
	ID        int
	Cores     [][]int // online logical processors, by physical core, in the kernel's order
	MemoryMB  int64   // of 2²⁰ bytes
	Distances []int   // to every node, in the kernel's order; 10 is the node's own memory
}

// CPUs returns all logical processors of the node, ascending.
func (n Node) CPUs() []int {
	out := slices.Concat(n.Cores...)
	slices.Sort(out)
	return out
}

// NUMA reads the online nodes from a sysfs tree, "" = /sys. For a kernel without NUMA it returns an error.
func NUMA(root string) ([]Node, error) {
	if root == "" {
		root = "/sys"
	}
	dir := filepath.Join(root, "devices/system")
	ids, err := readList(filepath.Join(dir, "node/online"))
	if err != nil {
		return nil, fmt.Errorf("NUMA nodes: %w", err)
	}
	online, err := readList(filepath.Join(dir, "cpu/online"))
	if err != nil {
		return nil, fmt.Errorf("processors: %w", err)
	}
	var out []Node
	for _, id := range ids {
		n := Node{ID: id}
		at := filepath.Join(dir, "node", "node"+strconv.Itoa(id))
		cpus, err := readList(filepath.Join(at, "cpulist"))
		if err != nil {
			return nil, fmt.Errorf("processors of NUMA node %d: %w", id, err)
		}
		cpus = slices.DeleteFunc(cpus, func(c int) bool { _, on := slices.BinarySearch(online, c); return !on })
		n.Cores = byCore(filepath.Join(dir, "cpu"), cpus)
		meminfo, err := os.ReadFile(filepath.Join(at, "meminfo"))
		if err != nil {
			return nil, fmt.Errorf("memory of NUMA node %d: %w", id, err)
		}
		n.MemoryMB = nodeMemoryMB(string(meminfo))
		distance, _ := os.ReadFile(filepath.Join(at, "distance")) // without distances all other nodes are equally far
		for _, d := range strings.Fields(string(distance)) {
			if v, err := strconv.Atoi(d); err == nil {
				n.Distances = append(n.Distances, v)
			}
		}
		out = append(out, n)
	}
	return out, nil
}

// byCore groups processors by the physical core that they are threads of. A processor without reported siblings is its
// own core.
func byCore(dir string, cpus []int) [][]int {
	var out [][]int
	seen := map[int]bool{}
	for _, c := range cpus {
		if seen[c] {
			continue
		}
		siblings, err := readList(filepath.Join(dir, "cpu"+strconv.Itoa(c), "topology/thread_siblings_list"))
		if err != nil {
			siblings = []int{c}
		}
		core := []int{}
		for _, s := range siblings {
			if _, here := slices.BinarySearch(cpus, s); here && !seen[s] {
				core, seen[s] = append(core, s), true
			}
		}
		if !seen[c] {
			core, seen[c] = append(core, c), true
		}
		out = append(out, core)
	}
	return out
}

// nodeMemoryMB returns MemTotal of a node's meminfo: "Node 0 MemTotal: 528280000 kB".
func nodeMemoryMB(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		if _, rest, ok := strings.Cut(line, " MemTotal:"); ok {
			return memTotalMB("MemTotal:" + rest)
		}
	}
	return 0
}

func readList(path string) ([]int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseList(strings.TrimSpace(string(b)))
}

// mostCPUs is the most numbers that a list may name: the kernel knows at most 8,192 processors.
const mostCPUs = 1 << 16

// ParseList parses the kernel's list of processors or nodes, "0-3,64-67", ascending; "" is an empty list.
func ParseList(s string) ([]int, error) {
	var out []int
	if s == "" {
		return out, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		b := a
		if isRange && err == nil {
			b, err = strconv.Atoi(to)
		}
		if err != nil || a < 0 || b < a || b >= mostCPUs {
			return nil, errors.New("not a list of numbers: " + strconv.Quote(s))
		}
		for ; a <= b; a++ {
			out = append(out, a)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// FormatList formats numbers as the kernel does. They must be ascending, without duplicates.
func FormatList(list []int) string {
	var b strings.Builder
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(list[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(list[j]))
		}
		i = j + 1
	}
	return b.String()
}

// Nodes converts NUMA nodes to the form of an inventory.
func Nodes(nodes []Node) []agentapi.NUMANode {
	var out []agentapi.NUMANode
	for _, n := range nodes {
		out = append(out, agentapi.NUMANode{
			Node:      n.ID,
			CPUs:      FormatList(n.CPUs()),
			MemoryMB:  n.MemoryMB,
			Distances: n.Distances,
		})
	}
	return out
}
