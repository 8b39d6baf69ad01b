// Package amd is AMD's device.Vendor. It reads what the kernel's driver shows in sysfs: the topology of its compute
// part (KFD, /sys/class/kfd) and each GPU's own folder (/sys/class/drm/renderD*/device). AMD's libraries read the same
// files, so none is loaded. The file formats are those of drivers/gpu/drm/amd in the kernel: amdkfd/kfd_topology.c and
// kfd_process.c, pm/amdgpu_pm.c, amdgpu/amdgpu_ras.c, amdgpu_vram_mgr.c, amdgpu_gfx.c and amdgpu_fence.c.
//
// Invariants: a fact that cannot be read is not reported, never zero. A GPU is known by the unique id in its chip; one
// that reports none is listed with that as its error.
package amd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/machine/gpu/device"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// TreeEnv names, to the probe, a folder that is read in place of /sys: the GPUs are then simulated.
const TreeEnv = "MUSTER_AMD_SYSFS"

// Vendor reads a tree like /sys.
type Vendor struct {
	root      string
	simulated bool
	tables    *tables
}

var _ device.Vendor = Vendor{}

// New returns the vendor of the GPUs in a simulated tree; "" is /sys.
func New(tree string) Vendor {
	return Vendor{root: cmp.Or(tree, "/sys"), simulated: tree != "", tables: &tables{last: map[string]metrics{}}}
}

// Start checks that the kernel's driver is there.
func (v Vendor) Start() *wire.Error {
	if _, err := os.Stat(filepath.Join(v.root, "module/amdgpu")); err != nil {
		return &wire.Error{Code: wire.CodeDriverNotLoaded, Call: "/sys/module/amdgpu",
			Text: "the amdgpu driver is not loaded"}
	}
	if _, err := os.Stat(v.topology()); err != nil {
		return &wire.Error{Code: wire.CodeLibraryNotFound, Call: "/sys/class/kfd",
			Text: "the driver has no compute part (KFD)"}
	}
	return nil
}

// Inventory returns the driver and the GPUs of its topology.
func (v Vendor) Inventory() (wire.System, *wire.Error) {
	s := wire.System{Driver: v.driver(), Simulated: v.simulated, Devices: []wire.Device{}}
	nodes, err := v.nodes()
	if err != nil {
		return s, err
	}
	for i, n := range nodes {
		d := wire.Device{Index: i, PCI: n.pci()}
		if d.Error = v.unfit(n); d.Error == nil {
			d.UUID = n.uuid()
		}
		s.Devices = append(s.Devices, d)
	}
	return s, nil
}

// driver returns the version of AMD's own driver package, or which kernel's driver it is: the kernel's own has no
// version.
func (v Vendor) driver() string {
	if own := readText(filepath.Join(v.root, "module/amdgpu/version")); own != "" {
		return own
	}
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "kernel"
	}
	return "kernel " + unix.ByteSliceToString(u.Release[:])
}

// unfit returns why a GPU cannot be rented; nil if it can.
func (v Vendor) unfit(n node) *wire.Error {
	mode := readText(filepath.Join(v.dir(n), "current_compute_partition"))
	switch {
	case mode != "" && mode != "SPX":
		return &wire.Error{Code: wire.CodeNotSupported, Call: "current_compute_partition",
			Text: fmt.Sprintf("it is partitioned (%s), and only whole GPUs are rented", mode)}
	case n.props["unique_id"] == 0:
		return &wire.Error{Code: wire.CodeNotSupported, Call: "unique_id",
			Text: "it has no unique id, as graphics within a processor, GPUs before Vega and virtual functions"}
	}
	return nil
}

// Describe returns the facts of a GPU that do not change from minute to minute.
func (v Vendor) Describe(r wire.Request) (wire.Description, *wire.Error) {
	var d wire.Description
	nodes, err := v.nodes()
	if err != nil {
		return d, err
	}
	i, err := find(nodes, r.GPU)
	if err != nil {
		return d, err
	}
	n, dir := nodes[i], v.dir(nodes[i])
	total, ok := readInt(filepath.Join(dir, "mem_info_vram_total"))
	if !ok {
		return d, &wire.Error{Code: wire.CodeUnknown, Call: "mem_info_vram_total", Text: "cannot be read"}
	}
	d.GPU = agentapi.GPU{
		UUID: n.uuid(), Index: i, Vendor: agentapi.AMD, Kind: agentapi.KindGPU, PCIBus: n.pci(), Model: v.model(n),
		Architecture: n.target(), VRAMMB: total >> 20, Links: links(nodes, i), Hive: n.hive(),
		Minor:          known(int(n.props["drm_render_minor"]), n.props["drm_render_minor"] > 0),
		NUMANode:       numa(dir),
		MIG:            agentapi.Optional[bool]{NotSupported: true},
		Persistence:    agentapi.Optional[bool]{NotSupported: true},
		PowerLimitMW:   milli(v.hwmon(dir, "power1_cap")),
		PowerDefaultMW: milli(v.hwmon(dir, "power1_cap_default")),
		VBIOS:          textOf(dir, "vbios_version"),
		Serial:         textOf(dir, "serial_number"),

		ConfidentialCompute: agentapi.Optional[bool]{NotSupported: true},
	}
	if _, err := os.Stat(filepath.Join(dir, "ras/umc_err_count")); err == nil {
		d.ECC = agentapi.Known(true)
	} else {
		d.ECC.NotSupported = true
	}
	if rocm := ROCm(readText(filepath.Join(v.root, "module/amdgpu/version"))); rocm != "" {
		d.Runtimes = map[string]string{"rocm": rocm}
	}
	p := pcieOf(dir)
	d.PCIeGenMax, d.PCIeGenCurrent = known(p.genMax, p.genMax > 0), known(p.gen, p.gen > 0)
	d.PCIeWidthMax, d.PCIeWidthCurrent = known(p.widthMax, p.widthMax > 0), known(p.width, p.width > 0)
	return d, nil
}

// Peers returns how a GPU reaches the others: XGMI, or through the processor that both are at, or that each is at.
func (v Vendor) Peers(r wire.Request) ([]wire.Peer, *wire.Error) {
	nodes, err := v.nodes()
	if err != nil {
		return nil, err
	}
	at, err := find(nodes, r.GPU)
	if err != nil {
		return nil, err
	}
	out := make([]wire.Peer, len(nodes))
	here := numa(v.dir(nodes[at]))
	for i, n := range nodes {
		there := numa(v.dir(n))
		switch {
		case i == at:
			out[i].Level = "X"
		case nodes[at].linked(n):
			out[i].Level = "XGMI"
		case here.Value != nil && there.Value != nil && *here.Value == *there.Value:
			out[i].Level = "NODE"
		case here.Value != nil && there.Value != nil:
			out[i].Level = "SYS"
		}
	}
	return out, nil
}

// Remake is for slices, which AMD's GPUs are not rented in.
func (v Vendor) Remake(wire.Request) (wire.Instance, *wire.Error) {
	return wire.Instance{}, device.Unsupported(wire.MethodRemake)
}

// Watch sends nothing: the driver's errors show in the counts that Condition reads.
func (v Vendor) Watch(context.Context, func(wire.Event)) {}

func known[T any](v T, ok bool) agentapi.Optional[T] {
	if !ok {
		return agentapi.Optional[T]{NotSupported: true}
	}
	return agentapi.Known(v)
}

// milli converts the microwatts of hwmon.
func milli(micro int64, ok bool) agentapi.Optional[int64] { return known(micro/1000, ok) }

func textOf(dir, name string) agentapi.Optional[string] {
	s := readText(filepath.Join(dir, name))
	return known(s, s != "" && !strings.EqualFold(s, "unknown"))
}

func numa(dir string) agentapi.Optional[int] {
	n, ok := readInt(filepath.Join(dir, "numa_node"))
	return known(int(n), ok && n >= 0)
}

// Rentable returns the places on the PCI bus of the GPUs that could be rented.
func (v Vendor) Rentable() []string {
	nodes, err := v.nodes()
	if err != nil {
		return nil
	}
	var out []string
	for _, n := range nodes {
		if n.props["unique_id"] != 0 {
			out = append(out, n.pci())
		}
	}
	return out
}
