package market

import (
	"encoding/json"
	"math/bits"
	"strconv"
	"strings"
)

// Topology is how close the GPUs of a host are to each other, by GPU index. It is immutable and shared by hosts with
// the same topology.
type Topology struct {
	close   [][]int
	uniform bool // every pair is equally close
}

// ParseTopology decodes the agent's JSON matrix of connection types (agentapi.Inventory.Topology). It returns nil if
// there is none or if it is malformed.
func ParseTopology(b []byte) *Topology {
	var m [][]string
	if len(b) == 0 || json.Unmarshal(b, &m) != nil || len(m) < 2 || len(m) > 64 {
		return nil
	}
	t := &Topology{close: make([][]int, len(m)), uniform: true}
	for i, row := range m {
		if len(row) != len(m) {
			return nil
		}
		t.close[i] = make([]int, len(row))
		for j, name := range row {
			if i != j {
				t.close[i][j] = closeness(name)
				t.uniform = t.uniform && t.close[i][j] == t.close[0][1]
			}
		}
	}
	return t
}

// closeness returns a weight for a connection type of nvidia-smi. NVLink, weighted by its number of links, ranks above
// all PCIe connections.
func closeness(name string) int {
	if links, ok := strings.CutPrefix(name, "NV"); ok {
		n, _ := strconv.Atoi(links) // an unreadable number counts as one link
		return 1000 + 10*min(max(n, 1), 100)
	}
	if name == "XGMI" { // between two of AMD's GPUs
		return 1000
	}
	return map[string]int{"PIX": 50, "PXB": 40, "PHB": 30, "NODE": 20, "SYS": 10}[name]
}

// between returns how close two GPUs are, or 0 if that is unknown.
func (t *Topology) between(i, j int) int {
	if t == nil || i < 0 || j < 0 || i >= len(t.close) || j >= len(t.close) {
		return 0
	}
	return t.close[i][j]
}

// choose returns count free GPUs of a model: those closest to each other; among equally close sets, the one whose
// removal leaves the remaining GPUs closest, then the one with the lowest indexes. The host must have that many.
func (h *Host) choose(model string, count int) []GPU {
	var free []GPU
	for i := range h.GPUs {
		if h.GPUs[i].Free && h.GPUs[i].Model == model {
			free = append(free, h.GPUs[i].GPU)
		}
	}
	if len(free) <= count || h.Topology == nil || h.Topology.uniform || len(free) > 64 {
		return free[:min(count, len(free))]
	}
	return pick(free, h.closest(free, count))
}

func pick(free []GPU, set uint64) []GPU {
	out := make([]GPU, 0, bits.OnesCount64(set))
	for i := range free {
		if set&(1<<i) != 0 {
			out = append(out, free[i])
		}
	}
	return out
}

// exactUpTo is the number of free GPUs up to which all subsets are compared: C(10,5) = 252.
const exactUpTo = 10

// closest returns the best set of count GPUs as a bit mask over free.
func (h *Host) closest(free []GPU, count int) uint64 {
	n := len(free)
	w := make([][]int, n)
	for i := range free {
		w[i] = make([]int, n)
		for j := range free {
			w[i][j] = h.Topology.between(free[i].Index, free[j].Index)
		}
	}
	var best uint64
	bestIn, bestCut := -1, 0
	consider := func(set uint64) {
		in, cut := closeOf(w, set)
		if in > bestIn || in == bestIn && (cut < bestCut || cut == bestCut && bits.Reverse64(set) > bits.Reverse64(best)) {
			best, bestIn, bestCut = set, in, cut
		}
	}
	if n <= exactUpTo {
		// Gosper's hack: iterate over all masks with count bits, in ascending order.
		for set := uint64(1)<<count - 1; set < 1<<n; {
			consider(set)
			low := set & -set
			next := set + low
			set = next | ((set^next)>>2)/low
		}
		return best
	}
	for seed := range free {
		consider(grow(w, seed, count))
	}
	return best
}

// closeOf returns the total closeness of the pairs within a set, and of the pairs between the set and the rest.
func closeOf(w [][]int, set uint64) (in, cut int) {
	for i := range w {
		for j := range i {
			a, b := set>>i&1, set>>j&1
			switch {
			case a&b == 1:
				in += w[i][j]
			case a|b == 1:
				cut += w[i][j]
			}
		}
	}
	return in, cut
}

// grow returns a set of count GPUs: it starts with a seed and repeatedly adds the GPU that is closest to the set.
func grow(w [][]int, seed, count int) uint64 {
	set := uint64(1) << seed
	for bits.OnesCount64(set) < count {
		best, most := -1, -1
		for i := range w {
			if set>>i&1 == 1 {
				continue
			}
			sum := 0
			for j := range w {
				if set>>j&1 == 1 {
					sum += w[i][j]
				}
			}
			if sum > most {
				best, most = i, sum
			}
		}
		set |= 1 << best
	}
	return set
}
