// Package fakekfd writes trees like the parts of /sys that the kernel's amdgpu driver fills, for simulated hosts with
// AMD's GPUs and for tests. The names of the files, their lines and their order are those of the kernel's sources:
// node_show, mem_show and iolink_show in amdkfd/kfd_topology.c, kfd_procfs_add_sysfs_files in amdkfd/kfd_process.c,
// amdgpu_ras_sysfs_read in amdgpu/amdgpu_ras.c, pm/amdgpu_pm.c and amdgpu/amdgpu_fence.c. No real AMD GPU has confirmed
// them.
package fakekfd

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Machine is a kind of host with AMD's GPUs.
type Machine struct {
	Name, About string
	Driver      string // version of AMD's driver package; "" = the kernel's own driver, which has none
	GPUs        []GPU
}

// GPU is one simulated device.
type GPU struct {
	UniqueID         uint64 // 0: it reports none
	Hive             uint64 // 0: none
	PCI              string // 0000:05:00.0
	NUMA             int
	Device, Revision string // 74a1, 00
	Class            string // 0x120000
	Target           int    // gfx_target_version: 90402
	SIMDs            int
	VRAM, VRAMUsed   int64    // bytes
	Partition        string   // current_compute_partition; "" = it has no such file
	Product          string   // product_name; "" = no such file
	RAS              []string // blocks of which errors are counted
	CapW             int64
	XGMI             int64 // MB/s to every other GPU of the hive
	Speed            string
	Bridge           bool   // a PCIe switch is between the slot and the GPU, as in a Radeon
	Sensor           string // temp1 or temp2
}

// Machines are the kinds of hosts that can be simulated as a whole.
var Machines = []Machine{
	{Name: "mi300x", About: "8 × MI300X, joined by XGMI into one hive.", Driver: "6.12.12", GPUs: mi300x()},
	{Name: "rx7900xtx", About: "A desktop with 2 × Radeon RX 7900 XTX.", GPUs: radeons()},
}

// MachineNamed returns the machine of that name; ok is false if there is none.
func MachineNamed(name string) (m Machine, ok bool) {
	for _, m := range Machines {
		if m.Name == name {
			return m, true
		}
	}
	return Machine{}, false
}

func mi300x() []GPU {
	var out []GPU
	for i, bus := range []string{"05", "26", "46", "65", "85", "a6", "c6", "e5"} {
		out = append(out, GPU{UniqueID: 0x7a1c3f5500d10000 + uint64(i)*0x1f3, Hive: 0x5c9d2e71a4b80617,
			PCI: "0000:" + bus + ":00.0", NUMA: i / 4, Device: "74a1", Revision: "00", Class: "0x120000", Target: 90402,
			SIMDs: 1216, VRAM: 206_141_652_992, VRAMUsed: 297_570_304, Partition: "SPX", Product: "AMD Instinct MI300X OAM",
			RAS: []string{"gfx", "sdma", "umc", "mmhub", "xgmi_wafl"}, CapW: 750, XGMI: 64000, Speed: "32.0 GT/s PCIe",
			Sensor: "temp2"})
	}
	return out
}

func radeons() []GPU {
	var out []GPU
	for i, bus := range []string{"03", "83"} {
		out = append(out, GPU{UniqueID: 0x3d5e71c2b0a94f10 + uint64(i), PCI: "0000:" + bus + ":00.0", Device: "744c",
			Revision: "c8", Class: "0x030000", Target: 110000, SIMDs: 192, VRAM: 25_753_026_560, VRAMUsed: 27_918_336, CapW: 339,
			Speed: "16.0 GT/s PCIe", Bridge: true, Sensor: "temp1"})
	}
	return out
}

// Tree is a written machine.
type Tree struct {
	Root string
	GPUs []GPU
}

// UUID is the name by which the agent knows GPU i.
func (t Tree) UUID(i int) string { return fmt.Sprintf("AMD-%016x", t.GPUs[i].UniqueID) }

// Write writes a machine's tree into the folder root.
func Write(root string, m Machine) (Tree, error) {
	t := Tree{root, m.GPUs}
	w := writer{root: root}
	w.text("module/amdgpu/initstate", "live\n")
	if m.Driver != "" {
		w.text("module/amdgpu/version", m.Driver+"\n")
	}
	w.text("class/kfd/kfd/topology/generation_id", "2\n")
	w.dir("class/kfd/kfd/proc")
	const processors = 1
	w.text("class/kfd/kfd/topology/nodes/0/gpu_id", "0\n")
	w.text("class/kfd/kfd/topology/nodes/0/properties", lines("cpu_cores_count", 64, "simd_count", 0, "mem_banks_count", 1,
		"io_links_count", len(m.GPUs), "vendor_id", 0, "device_id", 0, "location_id", 0, "domain", 0, "drm_render_minor", 0,
		"hive_id", 0))
	for i, g := range m.GPUs {
		w.node(processors+i, i, g, m.GPUs, processors)
		w.device(i, g)
	}
	return t, w.err
}

type writer struct {
	root string
	err  error
}

func (w *writer) dir(path string) {
	if w.err == nil {
		w.err = os.MkdirAll(filepath.Join(w.root, path), 0o755)
	}
}

func (w *writer) text(path, text string) {
	w.dir(filepath.Dir(path))
	if w.err == nil {
		w.err = os.WriteFile(filepath.Join(w.root, path), []byte(text), 0o644)
	}
}

func (w *writer) link(path, to string) {
	w.dir(filepath.Dir(path))
	if w.err == nil {
		w.err = os.Symlink(to, filepath.Join(w.root, path))
	}
}

// node writes a GPU's node of the topology, in the order of node_show.
func (w *writer) node(number, i int, g GPU, all []GPU, processors int) {
	dir := fmt.Sprintf("class/kfd/kfd/topology/nodes/%d", number)
	device, _ := strconv.ParseUint(g.Device, 16, 32)
	w.text(dir+"/gpu_id", fmt.Sprintf("%d\n", GPUID(i)))
	w.text(dir+"/name", "ip discovery\n")
	xcc := 1
	if g.Target == 90402 {
		xcc = 8
	}
	w.text(dir+"/properties", lines("cpu_cores_count", 0, "simd_count", g.SIMDs, "mem_banks_count", 1, "caches_count", 0,
		"io_links_count", 1, "p2p_links_count", 0, "cpu_core_id_base", 0, "simd_id_base", 2147487744,
		"max_waves_per_simd", 8, "lds_size_in_kb", 64, "gds_size_in_kb", 0, "num_gws", 64, "wave_front_size", 64,
		"array_count", 32, "simd_arrays_per_engine", 1, "cu_per_simd_array", 10, "simd_per_cu", 4,
		"max_slots_scratch_cu", 32, "gfx_target_version", g.Target, "vendor_id", 4098, "device_id", device,
		"location_id", location(g.PCI), "domain", 0, "drm_render_minor", Minor(i), "hive_id", g.Hive,
		"num_sdma_engines", 2, "num_sdma_xgmi_engines", 14, "max_engine_clk_fcompute", 2100, "local_mem_size", 0,
		"unique_id", g.UniqueID, "num_xcc", xcc, "max_engine_clk_ccompute", 3700))
	w.text(dir+"/mem_banks/0/properties", lines("heap_type", 1, "size_in_bytes", g.VRAM, "flags", 0, "width", 8192,
		"mem_clk_max", 1300))
	ends := []struct{ kind, to, weight, rate int }{{2, 0, 20, 0}}
	for j, other := range all {
		if j != i && g.Hive != 0 && other.Hive == g.Hive {
			ends = append(ends, struct{ kind, to, weight, rate int }{11, processors + j, 15, int(g.XGMI)})
		}
	}
	for n, end := range ends {
		w.text(fmt.Sprintf("%s/io_links/%d/properties", dir, n), lines("type", end.kind, "version_major", 0,
			"version_minor", 0, "node_from", number, "node_to", end.to, "weight", end.weight, "min_latency", 0,
			"max_latency", 0, "min_bandwidth", end.rate, "max_bandwidth", end.rate, "recommended_transfer_size", 0,
			"recommended_sdma_engine_id_mask", 0, "flags", 1))
	}
}

// device writes a GPU's folder on the PCI bus, and what leads to it.
func (w *writer) device(i int, g GPU) {
	dir := "devices/pci0000:00/" + g.PCI
	port := map[string]string{"vendor": "0x1002", "class": "0x060400", "current_link_speed": g.Speed,
		"max_link_speed": g.Speed, "current_link_width": "16", "max_link_width": "16"}
	if g.Bridge {
		bus, _, _ := strings.Cut(strings.TrimPrefix(g.PCI, "0000:"), ":")
		up := "devices/pci0000:00/0000:" + bus + ":1e.0"
		for _, at := range []string{up, up + "/0000:" + bus + ":1f.0"} {
			for name, text := range port {
				w.text(at+"/"+name, text+"\n")
			}
			dir = at + "/" + g.PCI
		}
		w.text(up+"/current_link_width", "8\n") // the slot's
		w.text(up+"/max_link_width", "8\n")
	}
	files := map[string]string{
		"vendor": "0x1002", "device": "0x" + g.Device, "revision": "0x" + g.Revision, "class": g.Class,
		"numa_node": strconv.Itoa(g.NUMA), "gpu_busy_percent": "0", "unique_id": fmt.Sprintf("%016x", g.UniqueID),
		"mem_info_vram_total": fmt.Sprint(g.VRAM), "mem_info_vram_used": fmt.Sprint(g.VRAMUsed),
		"vbios_version": "113-M3000100-102", "current_link_speed": g.Speed, "max_link_speed": g.Speed,
		"current_link_width": "16", "max_link_width": "16",
	}
	if g.Partition != "" {
		files["current_compute_partition"] = g.Partition
	}
	if g.Product != "" {
		files["product_name"], files["serial_number"] = g.Product, fmt.Sprintf("6923%08d", i)
	}
	for _, block := range g.RAS {
		files["ras/"+block+"_err_count"] = "ue: 0\nce: 0"
		files["ras/gpu_vram_bad_pages"] = "0x00000001 : 0x00001000 : R" // out of use: a GPU like that is healthy
	}
	sensors := fmt.Sprintf("hwmon/hwmon%d/", 3+i)
	for name, value := range map[string]int64{"power1_average": 132_000_000, "power1_cap": g.CapW * 1_000_000,
		"power1_cap_default": g.CapW * 1_000_000, "power1_cap_min": 0, "power1_cap_max": g.CapW * 1_000_000,
		g.Sensor + "_input": 41_000, "freq1_input": 132_000_000, "freq2_input": 900_000_000} {
		files[sensors+name] = strconv.FormatInt(value, 10)
	}
	files[sensors+"name"] = "amdgpu"
	for name, text := range files {
		w.text(dir+"/"+name, text+"\n")
	}
	w.link("bus/pci/devices/"+g.PCI, "../../../"+dir)
	w.link(fmt.Sprintf("class/drm/renderD%d/device", Minor(i)), "../../../"+dir)
	for _, minor := range []int{i, Minor(i)} {
		w.text(fmt.Sprintf("kernel/debug/dri/%d/name", minor), fmt.Sprintf("amdgpu dev=%s unique=%s\n", g.PCI, g.PCI))
	}
	w.text(fmt.Sprintf("kernel/debug/dri/%d/amdgpu_gpu_recover", i), "0\n")
}

// GPUID is KFD's number of GPU i, Minor that of its render node.
func GPUID(i int) int { return 28851 + 977*i }

// Minor is the number of GPU i's render node.
func Minor(i int) int { return 128 + i }

// location is the kernel's pci_dev_id.
func location(pci string) uint64 {
	var domain, bus, slot, function uint64
	if n, err := fmt.Sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &slot, &function); n != 4 || err != nil {
		return 0
	}
	return bus<<8 | slot<<3 | function
}

// lines formats pairs of a name and a number as the topology's files do.
func lines(pairs ...any) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "%s %d\n", pairs[i], pairs[i+1])
	}
	return b.String()
}
