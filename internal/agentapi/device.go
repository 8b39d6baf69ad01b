package agentapi

// Vendors of GPUs.
const (
	NVIDIA = "nvidia"
	AMD    = "amd"
)

// Kinds of devices.
const (
	KindGPU   = "gpu"
	KindSlice = "slice" // a part of a GPU with memory of its own: a MIG device
)

// GPU is one device, known by its vendor's UUID.
type GPU struct {
	// UUID is NVML's (GPU-…, MIG-…), or AMD- and the unique id that its driver reports.
	UUID  string `json:"uuid"`
	Index int    `json:"index"`
	// Vendor is one of the vendor constants; older agents leave it out and have GPUs of NVIDIA only. Kind is one of the
	// Kind constants; "" is KindGPU.
	Vendor string `json:"vendor,omitempty"`
	Kind   string `json:"kind,omitempty"`
	// Parent is the UUID of the GPU that a slice is part of. The inventory lists that GPU, too.
	Parent string `json:"parent,omitempty"`
	// AttachName is the device's name in the Container Device Interface: nvidia.com/gpu=GPU-….
	AttachName string `json:"attach_name,omitempty"`
	// Runtimes are the newest versions that its driver runs, by name: {"cuda": "12.8"} or {"rocm": "6.4"}.
	Runtimes map[string]string `json:"runtimes,omitempty"`
	// Links are its active links to other GPUs, one for each end; older agents report NVLinks only.
	Links []Link `json:"links,omitempty"`
	// Hive names the GPUs that are joined so closely that a reset of one resets all of them (AMD's XGMI hives). They are
	// rented together. "" is none.
	Hive string `json:"hive,omitempty"`
	// Minor is N of the device node /dev/nvidiaN or /dev/dri/renderDN.
	Minor        Optional[int] `json:"minor,omitzero"`
	PCIBus       string        `json:"pci_bus"`      // 00000000:17:00.0
	Model        string        `json:"model"`        // NVIDIA H100 80GB HBM3
	Architecture string        `json:"architecture"` // Hopper, Ada, …
	VRAMMB       int64         `json:"vram_mb"`
	ComputeCap   string        `json:"compute_cap"` // 9.0

	PCIeGenMax       Optional[int] `json:"pcie_gen_max"`
	PCIeGenCurrent   Optional[int] `json:"pcie_gen_current"`
	PCIeWidthMax     Optional[int] `json:"pcie_width_max"`
	PCIeWidthCurrent Optional[int] `json:"pcie_width_current"`
	// PCIeGenLoaded and PCIeWidthLoaded are the fastest that the link was under load since the host booted; 0: not
	// measured yet. Older agents do not measure it.
	PCIeGenLoaded   int `json:"pcie_gen_loaded,omitempty"`
	PCIeWidthLoaded int `json:"pcie_width_loaded,omitempty"`
	// RingGbps is what it sent over NVLink to the next GPU of its model while each of the host's GPUs of the model sent to
	// its next one, in Gbit/s: the bus bandwidth of a ring all-reduce, if no other GPU sent less. 0: not measured within
	// 30 days, or not over NVLink. Older agents do not measure it. RingAtMS is when, in milliseconds since 1970 by the
	// host's clock.
	RingGbps            float64          `json:"ring_gbps,omitempty"`
	RingAtMS            int64            `json:"ring_at_ms,omitempty"`
	NUMANode            Optional[int]    `json:"numa_node"`
	NVLinks             []NVLink         `json:"nvlinks,omitempty"`
	MIG                 Optional[bool]   `json:"mig"`
	ECC                 Optional[bool]   `json:"ecc"`
	Persistence         Optional[bool]   `json:"persistence"`
	PowerLimitMW        Optional[int64]  `json:"power_limit_mw"`
	PowerDefaultMW      Optional[int64]  `json:"power_default_mw"` // what it was made for
	VBIOS               Optional[string] `json:"vbios"`
	Serial              Optional[string] `json:"serial"`
	ConfidentialCompute Optional[bool]   `json:"confidential_compute"`

	// ConfidentialReady: with confidential computing, the GPU accepts work. Without it, CUDA fails with error 802.
	ConfidentialReady Optional[bool] `json:"confidential_ready,omitzero"`
	// VGPU is set if the GPU is a part of one that a hypervisor lends to this machine.
	VGPU *VGPU `json:"vgpu,omitempty"`
	// FabricCluster and FabricClique name, as NVIDIA's driver does, the NVLink fabric that reaches beyond this machine
	// (GB200 NVL72), and the part of it in which all GPUs reach each other. "" is none.
	FabricCluster string `json:"fabric_cluster,omitempty"` // clusterUuid, 32 hexadecimal digits
	FabricClique  uint32 `json:"fabric_clique,omitempty"`

	Health       string `json:"health"` // healthy, suspect, quarantined
	HealthReason string `json:"health_reason,omitempty"`
	// InUse is what uses the GPU beside leases, and how much of its memory: "Xorg, 412 MiB". Such a GPU is not free.
	InUse string `json:"in_use,omitempty"`
	// Display: a display uses the GPU, or did at the last check, so its driver ends kernels that run for some seconds.
	// Older agents report that as a problem only.
	Display bool `json:"display,omitempty"`
}

// VGPU is NVIDIA's licence for a part of a GPU in a virtual machine. Without one, the driver slows it down and
// refuses work after minutes to a day.
type VGPU struct {
	Product  string         `json:"product,omitempty"`
	Licensed Optional[bool] `json:"licensed"`
}

// Types of links between GPUs.
const (
	LinkNVLink = "nvlink"
	LinkXGMI   = "xgmi"
)

// Link is what connects a GPU with another one, or with the switches that lead to all others.
type Link struct {
	Peer string  `json:"peer"`           // PCI bus id of the other end, or "switch"
	Type string  `json:"type"`           // nvlink, xgmi
	Gbps float64 `json:"gbps,omitempty"` // in one direction, of all lanes to this peer together; 0: not known
}

// VendorOf returns the vendor of a GPU, which older agents do not report.
func (g *GPU) VendorOf() string {
	if g.Vendor == "" {
		return NVIDIA
	}
	return g.Vendor
}

// KindOf returns the kind of a device, which older agents do not report.
func (g *GPU) KindOf() string {
	if g.Kind == "" {
		return KindGPU
	}
	return g.Kind
}

// NVLink is one link of a GPU.
type NVLink struct {
	Link   int  `json:"link"`
	Active bool `json:"active"`
	// Version is NVML's nvmlNvlinkVersion_t, which is an enum: 1.0 is 1, 2.0 is 2, 2.2 is 3, 3.0 is 4, 3.1 is 5, 4.0 is 6,
	// 5.0 is 7. 0 is not known.
	Version int     `json:"version"`
	Gbps    float64 `json:"gbps,omitempty"`   // in one direction, by the agent; 0: not known
	Remote  string  `json:"remote,omitempty"` // PCI bus of the other end
}

// nvlinkGBps is what one NVLink carries in one direction, GB/s (NVIDIA's data sheets), by Version.
var nvlinkGBps = map[int]float64{1: 20, 2: 25, 3: 25, 4: 25, 5: 25, 6: 25, 7: 50}

// NVLinkGbps is what one NVLink of a version carries in one direction, Gbit/s. ok is false for a version of which that
// is not known.
func NVLinkGbps(version int) (gbps float64, ok bool) {
	gbytes, ok := nvlinkGBps[version]
	return 8 * gbytes, ok
}
