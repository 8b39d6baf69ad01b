package amd

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// xgmi is the type of a link between two GPUs (CRAT_IOLINK_TYPE_XGMI).
const xgmi = 11

// node is a GPU of the topology. A node without SIMD units is a processor and is left out.
type node struct {
	number int
	gpuID  int64 // KFD's own
	props  map[string]uint64
	io     []map[string]uint64 // its links to other nodes
}

func (v Vendor) topology() string { return filepath.Join(v.root, "class/kfd/kfd/topology/nodes") }

// nodes returns the GPUs by the number of their node, which is the order in which ROCm counts them.
func (v Vendor) nodes() ([]node, *wire.Error) {
	entries, err := os.ReadDir(v.topology())
	if err != nil {
		return nil, &wire.Error{Code: wire.CodeUnknown, Call: "/sys/class/kfd/kfd/topology/nodes", Text: err.Error()}
	}
	var out []node
	for _, e := range entries {
		number, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join(v.topology(), e.Name())
		n := node{number: number, props: properties(filepath.Join(dir, "properties"))}
		if n.props["simd_count"] == 0 {
			continue
		}
		n.gpuID, _ = readInt(filepath.Join(dir, "gpu_id"))
		ends, _ := filepath.Glob(filepath.Join(dir, "io_links/*/properties"))
		for _, end := range ends {
			n.io = append(n.io, properties(end))
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b node) int { return cmp.Compare(a.number, b.number) })
	return out, nil
}

// find returns the place of a GPU among the nodes. One that is not there has gone: nothing but itself keeps a GPU from
// being found here.
func find(nodes []node, uuid string) (int, *wire.Error) {
	i := slices.IndexFunc(nodes, func(n node) bool { return n.props["unique_id"] != 0 && n.uuid() == uuid })
	if i < 0 {
		return 0, &wire.Error{Code: wire.CodeGPULost, Call: "kfd topology", Text: "the driver does not list it any more"}
	}
	return i, nil
}

func (v Vendor) findNode(uuid string) (node, *wire.Error) {
	nodes, err := v.nodes()
	if err != nil {
		return node{}, err
	}
	i, err := find(nodes, uuid)
	if err != nil {
		return node{}, err
	}
	return nodes[i], nil
}

func (n node) uuid() string { return fmt.Sprintf("AMD-%016x", n.props["unique_id"]) }

// pci returns the form 00000000:05:00.0. location_id is the bus and the function's number (pci_dev_id).
func (n node) pci() string {
	at := n.props["location_id"]
	return fmt.Sprintf("%08X:%02X:%02X.%X", n.props["domain"], at>>8&0xff, at>>3&0x1f, at&7)
}

// dir returns the GPU's folder on the PCI bus.
func (v Vendor) dir(n node) string {
	return filepath.Join(v.root, "bus/pci/devices", strings.ToLower(n.pci()[4:]))
}

// target returns the name by which compilers know the architecture: gfx942, gfx90a, gfx1100.
func (n node) target() string {
	t := n.props["gfx_target_version"]
	if t == 0 {
		return ""
	}
	return fmt.Sprintf("gfx%d%d%x", t/10000, t/100%100, t%100)
}

// hive returns the name of the GPUs that are joined by XGMI, all of which a reset of one resets; "" if it has no such.
func (n node) hive() string {
	if n.props["hive_id"] == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", n.props["hive_id"])
}

func (n node) linked(to node) bool {
	return slices.ContainsFunc(n.io, func(l map[string]uint64) bool {
		return l["type"] == xgmi && l["node_to"] == uint64(to.number)
	})
}

// links returns a GPU's links to other GPUs. Bandwidths are in megabytes a second in one direction.
func links(nodes []node, at int) []agentapi.Link {
	var out []agentapi.Link
	for _, to := range nodes {
		for _, l := range nodes[at].io {
			if l["type"] == xgmi && l["node_to"] == uint64(to.number) && to.number != nodes[at].number {
				gbps := float64(l["max_bandwidth"]) * 8 / 1000
				out = append(out, agentapi.Link{Peer: to.pci(), Type: agentapi.LinkXGMI, Gbps: gbps})
			}
		}
	}
	return out
}

// properties reads lines of a name and a number.
func properties(path string) map[string]uint64 {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	out := map[string]uint64{}
	for s := bufio.NewScanner(f); s.Scan(); {
		name, text, _ := strings.Cut(s.Text(), " ")
		if n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64); err == nil {
			out[name] = n
		}
	}
	return out
}
