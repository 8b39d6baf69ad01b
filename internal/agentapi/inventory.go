package agentapi

import "strconv"

// Inventory is what a host has. `muster-agent inventory --json` prints it without a server.
type Inventory struct {
	Protocol     int    `json:"protocol"`
	AgentVersion string `json:"agent_version"`
	BootID       string `json:"boot_id"`
	Hostname     string `json:"hostname"`
	OS           string `json:"os"`     // PRETTY_NAME of /etc/os-release
	Kernel       string `json:"kernel"` // uname -r
	Arch         string `json:"arch"`   // amd64, arm64
	CPUModel     string `json:"cpu_model"`
	CPUCores     int    `json:"cpu_cores"` // logical
	// NUMA are the host's nodes of processors and memory, where its kernel reports them.
	NUMA []NUMANode `json:"numa,omitempty"`
	// NICs are its network ports.
	NICs []NIC `json:"nics,omitempty"`
	// HCAs are the ports of its RDMA devices.
	HCAs []HCA `json:"hcas,omitempty"`
	// RDMA is what of them can be rented; nil: nothing.
	RDMA        *RDMA `json:"rdma,omitempty"`
	RAMMB       int64 `json:"ram_mb"`
	DiskGB      int64 `json:"disk_gb"`      // free where container data lives
	DiskLimited bool  `json:"disk_limited"` // the storage driver enforces a per-container size
	// ScratchGB is what the scratches of all nodes together may take, in GB of 10⁹ bytes; 0: the host offers none.
	ScratchGB int64 `json:"scratch_gb,omitempty"`
	// Shared are the shared file systems that the operator declares for the host.
	Shared []SharedFS `json:"shared,omitempty"`
	// Runtimes are the OCI runtimes that workloads can be run with here, by the Runtime constants. An agent that does not
	// say offers runc.
	Runtimes []string `json:"runtimes,omitempty"`

	// LeaseUpMbps and LeaseDownMbps are what the operator lets each lease move over the host's own line; 0: no bound.
	LeaseUpMbps   int `json:"lease_up_mbps,omitempty"`
	LeaseDownMbps int `json:"lease_down_mbps,omitempty"`

	Driver          string `json:"driver"`           // NVIDIA driver version, "" without one
	AMDGPU          string `json:"amdgpu,omitempty"` // version of AMD's driver, or which kernel's it is; "" without one
	CUDAMax         string `json:"cuda_max"`         // highest CUDA the driver supports, "12.4"
	NVMLVersion     string `json:"nvml_version"`
	Simulated       bool   `json:"simulated"`                 // the NVML library is our fake
	AttachMode      string `json:"attach_mode"`               // cdi, nvidia, none
	ToolkitVersion  string `json:"toolkit_version,omitempty"` // NVIDIA Container Toolkit
	DockerVersion   string `json:"docker_version,omitempty"`
	DockerAPI       string `json:"docker_api,omitempty"`
	RuncVersion     string `json:"runc_version,omitempty"`
	StorageDriver   string `json:"storage_driver,omitempty"`
	LiveRestore     bool   `json:"live_restore"`
	KernelWireGuard bool   `json:"kernel_wireguard"`
	MultiNode       bool   `json:"multi_node"` // peers on other hosts can reach it directly
	Relayed         bool   `json:"relayed"`    // its overlay can use relays
	// Capabilities are what the agent can do beyond its protocol, by the Cap constants.
	Capabilities []string `json:"capabilities,omitempty"`

	GPUs []GPU `json:"gpus"`
	// Topology is the common ancestor of each pair of GPUs by place in GPUs, nvidia-smi's names: X, NV#, PIX, PXB, PHB,
	// NODE, SYS.
	Topology [][]string `json:"topology,omitempty"`
	// P2P is what peer access between each pair comes to, nvidia-smi's names: OK, CNS, GNS, TNS, DR, NS, U.
	P2P      [][]string `json:"p2p,omitempty"`
	Problems []Problem  `json:"problems,omitempty"` // what keeps the host from being rentable, or from being good
	// Images are those on the host that were pulled without credentials, used last first, at most MaxImages.
	Images []CachedImage `json:"images,omitempty"`
	// Prefetch: popular public images are fetched while nothing is leased.
	Prefetch bool `json:"prefetch,omitempty"`
}

// NUMANode is a group of processors and the memory near them.
type NUMANode struct {
	Node      int    `json:"node"`
	CPUs      string `json:"cpus"` // logical processors that are online, the kernel's list: 0-55,112-167
	MemoryMB  int64  `json:"memory_mb"`
	Distances []int  `json:"distances,omitempty"` // to every node in order; 10 is its own
}

// NIC is a network port of the host.
type NIC struct {
	Name      string        `json:"name"`
	SpeedMbps int           `json:"speed_mbps,omitempty"` // of its link now; 0: not reported, or no link
	Up        bool          `json:"up"`
	Driver    string        `json:"driver,omitempty"`
	NUMANode  Optional[int] `json:"numa_node"`
	RDMA      string        `json:"rdma,omitempty"`     // its RDMA device, such as mlx5_0
	Underlay  bool          `json:"underlay,omitempty"` // the operator wants clusters' traffic to go by it
}

// GPUsNear are the indexes of the GPUs that say they are at a NUMA node.
func (i Inventory) GPUsNear(node int) []string {
	var out []string
	for _, g := range i.GPUs {
		if g.NUMANode.Or(-1) == node {
			out = append(out, strconv.Itoa(g.Index))
		}
	}
	return out
}

// OCI runtimes that a workload can ask for.
const (
	RuntimeRunc  = "runc"  // containers on the host's kernel
	RuntimeRunsc = "runsc" // gVisor: a kernel of its own between the workload and the host's
)

// MaxImages is how many images an inventory names.
const MaxImages = 64

// CachedImage is an image that lies on a host.
type CachedImage struct {
	Ref    string `json:"ref"`    // in full: index.docker.io/library/busybox:1
	Digest string `json:"digest"` // what the name meant when it was pulled
	Bytes  int64  `json:"bytes"`  // unpacked
}

// ProblemInUse is the code of the problem that a GPU is in use on the host itself.
const ProblemInUse = "gpu_in_use"

// ProblemOwnerUse is the code of the problem that programs of the host's own use a GPU that is rented.
const ProblemOwnerUse = "gpu_beside"

// Problem is cause, evidence and fix.
type Problem struct {
	Code     string `json:"code"`
	Severity string `json:"severity"` // warn, bad (bad: not rentable)
	Cause    string `json:"cause"`
	Evidence string `json:"evidence,omitempty"`
	Fix      string `json:"fix,omitempty"`
}

// Optional is a fact that a device may not report: a value, not supported, or an error. Never a silent zero.
type Optional[T any] struct {
	Value        *T     `json:"value,omitempty"`
	NotSupported bool   `json:"not_supported,omitempty"`
	Error        string `json:"error,omitempty"`
}

// Known is an Optional with a value.
func Known[T any](v T) Optional[T] { return Optional[T]{Value: &v} }

// Or is the value, or fallback when there is none.
func (o Optional[T]) Or(fallback T) T {
	if o.Value == nil {
		return fallback
	}
	return *o.Value
}
