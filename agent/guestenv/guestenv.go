// Package guestenv makes the environment of a workload: what distributed programs need to find each other, with the
// renter's own variables over it where that is no matter of safety.
package guestenv

import (
	"sort"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// MasterPort is MASTER_PORT unless the renter sets another.
const MasterPort = 29500

// DriverCapabilities is what of NVIDIA's driver a workload gets, whatever its image asks for: all that CDI gives too
// (CUDA, NVML, OptiX and Vulkan, video coding, 32-bit libraries), but not the display.
const DriverCapabilities = "compute,utility,graphics,video,compat32"

// Build returns the variables the platform adds to a workload, KEY=value sorted by key, the renter's included. visible
// is NVIDIA_VISIBLE_DEVICES: "void" under CDI and without GPUs, else the UUIDs. image is the image's own environment,
// KEY=value: its NVIDIA_… variables are set to the empty string, because NVIDIA's runtime adds devices of the host for
// some of them (NVIDIA_MOFED, NVIDIA_IMEX_CHANNELS). A renter's variable that touches the isolation of devices is an
// Invalid fault: the server refuses it first, this is the second line.
func Build(spec agentapi.LeaseSpec, visible string, image []string) ([]string, error) {
	env := defaults(spec)
	for _, kv := range image {
		if k, _, _ := strings.Cut(kv, "="); choosesDevices(k) {
			env[k] = ""
		}
	}
	if spec.ScratchGB > 0 {
		env["MUSTER_SCRATCH"] = agentapi.ScratchPath
	}
	for k, v := range spec.Env {
		if err := CheckName(k); err != nil {
			return nil, err
		}
		env[k] = v
	}
	env["NVIDIA_VISIBLE_DEVICES"], env["NVIDIA_DRIVER_CAPABILITIES"] = visible, DriverCapabilities
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	sort.Strings(out)
	return out, nil
}

// CheckName refuses names a renter may not set.
func CheckName(name string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		return fault.InvalidField("env", "%q cannot be a variable's name", name)
	case choosesDevices(name):
		return fault.InvalidField("env."+name, "NVIDIA_… variables choose devices and are set by the platform")
	}
	return nil
}

func choosesDevices(name string) bool { return strings.HasPrefix(strings.ToUpper(name), "NVIDIA_") }

func defaults(spec agentapi.LeaseSpec) map[string]string {
	gpus := max(1, len(spec.GPUs))
	master := spec.Network.Address
	for _, p := range spec.Network.Peers {
		if p.Rank == 0 {
			master = p.Address
		}
	}
	return map[string]string{
		// One process per node is the reading of RANK that every launcher understands; launchers that start one
		// process per GPU (torchrun --nproc-per-node) set these again for their children.
		"MASTER_ADDR":    master,
		"MASTER_PORT":    strconv.Itoa(MasterPort),
		"WORLD_SIZE":     strconv.Itoa(spec.Nodes),
		"RANK":           strconv.Itoa(spec.Rank),
		"LOCAL_RANK":     "0",
		"NODE_RANK":      strconv.Itoa(spec.Rank),
		"NNODES":         strconv.Itoa(spec.Nodes),
		"NPROC_PER_NODE": strconv.Itoa(gpus),

		"MUSTER_HOSTFILE": "/run/muster/node/hostfile",

		// "=ovl0" is NCCL's exact match; without "=" it is a prefix.
		"NCCL_SOCKET_IFNAME":    "=ovl0",
		"NCCL_SOCKET_FAMILY":    "AF_INET",
		"NCCL_IB_DISABLE":       "1",
		"NCCL_SOCKET_NTHREADS":  "4", // a virtual device gets no helper threads by itself
		"NCCL_NSOCKS_PERTHREAD": "4",
		"NCCL_DEBUG":            "WARN",
		"GLOO_SOCKET_IFNAME":    "ovl0",
		"TP_SOCKET_IFNAME":      "ovl0",

		"OMPI_MCA_btl_tcp_if_include": "ovl0",
		"OMPI_MCA_oob_tcp_if_include": "ovl0",
		// How mpirun reaches the other ranks: images have no sshd. Open MPI 4 and 5 have different names for it.
		"OMPI_MCA_plm_rsh_agent": "/run/muster/guest rsh",
		"PRTE_MCA_plm_ssh_agent": "/run/muster/guest rsh",
	}
}
