// Package guestenv builds the environment of a workload: the variables with which distributed programs find each other.
// The renter's own variables override them, except those that concern safety.
package guestenv

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

const (
	nodeDir = "/run/muster/node" // guest.NodeDir
	// launchers has an ssh that reaches the other ranks without a server in their images, for the launchers of DeepSpeed
	// and Horovod.
	launchers = nodeDir + "/bin"
	// defaultPath is what runc sets where an image sets no PATH.
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// ResumeLabel is the variable that holds the label of the snapshot that a node's volumes were restored from.
const ResumeLabel = "MUSTER_RESUME_LABEL"

// DriverCapabilities is the part of NVIDIA's driver that a workload gets, whatever its image requests: everything that
// CDI gives too (CUDA, NVML, OptiX and Vulkan, video coding, 32-bit libraries), but not the display.
const DriverCapabilities = "compute,utility,graphics,video,compat32"

// Build returns the environment of a workload, including the renter's variables, as KEY=value sorted by key. visible is
// NVIDIA_VISIBLE_DEVICES: "void" under CDI and without GPUs, otherwise the UUIDs. image is the image's own environment,
// KEY=value. Those of its variables that choose devices are set to the empty string, because NVIDIA's runtime adds
// devices of the host for some of them (NVIDIA_MOFED, NVIDIA_IMEX_CHANNELS). Its other variables stay as they are,
// except for those that name the node's network, which an image cannot know. A renter's variable that chooses devices
// is an Invalid fault: the server refuses it first, this is the second check.
//
// rdma are the RDMA ports that the workload gets.
func Build(spec agentapi.LeaseSpec, visible string, image []string, resume string,
	rdma ...agentapi.HCA) ([]string, error) {
	env := launch(spec)
	for _, kv := range image {
		switch k, v, _ := strings.Cut(kv, "="); {
		case agentapi.ChoosesDevices(k):
			env[k] = ""
		case k == "PATH" && spec.Nodes > 1:
			env[k] = launchers + ":" + v
		default:
			delete(env, k)
		}
	}
	maps.Copy(env, network(spec, rdma))
	if spec.ScratchGB > 0 {
		env["MUSTER_SCRATCH"] = agentapi.ScratchPath
	}
	if resume != "" {
		env[ResumeLabel] = resume
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

// CheckName returns an error for names that a renter may not set.
func CheckName(name string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		return fault.InvalidField("env", "%q cannot be a variable's name", name)
	case agentapi.ChoosesDevices(name):
		return fault.InvalidField("env."+name, "%s decides which devices a node has: Muster sets it", name)
	}
	return nil
}

// useRDMA has the libraries use exactly these ports. Bootstraps stay on the overlay, which is encrypted.
func useRDMA(env map[string]string, spec agentapi.LeaseSpec, ports []agentapi.HCA) {
	var named []string
	for _, p := range ports {
		if p.Driver == "efa" { // through libfabric, and the image's plug-in for NCCL
			env["FI_PROVIDER"] = "efa"
			continue
		}
		named = append(named, p.Device+":"+strconv.Itoa(p.Port))
	}
	if len(ports) > 0 {
		delete(env, "NCCL_IB_DISABLE")
	}
	if len(named) == 0 {
		return
	}
	all := strings.Join(named, ",")
	env["NCCL_IB_HCA"] = "=" + all // exact match
	chooseGID(env, ports)
	if p := spec.Network.Partition; p != nil && ports[0].PKeyIndex.Value != nil {
		env["NCCL_IB_PKEY"] = strconv.Itoa(*ports[0].PKeyIndex.Value) // an index; UCX takes the key
		env["UCX_IB_PKEY"] = fmt.Sprintf("%#04x", p.PKey)
	}
	env["UCX_NET_DEVICES"] = all + ",ovl0"
	env["NVSHMEM_HCA_LIST"], env["NVSHMEM_REMOTE_TRANSPORT"] = all, "ibrc"
}

// NCCL returns the variables with which NCCL uses exactly these ports, and the overlay for its bootstrap. The renter's
// variables are not among them.
func NCCL(spec agentapi.LeaseSpec, ports []agentapi.HCA) map[string]string {
	env := launch(spec)
	maps.Copy(env, network(spec, ports))
	for k := range env {
		if !strings.HasPrefix(k, "NCCL_") {
			delete(env, k)
		}
	}
	delete(env, "NCCL_DEBUG")
	return env
}

// chooseGID makes the libraries use the ports' addresses of RoCE v2. NCCL and UCX take one index for all devices; where
// the ports' differ, they choose by these rules themselves (NCCL from 2.21 on, UCX always).
func chooseGID(env map[string]string, ports []agentapi.HCA) {
	index := ""
	for i, p := range ports {
		if p.Link() != agentapi.LinkRoCE || p.GIDIndex.Value == nil {
			return
		}
		switch own := strconv.Itoa(*p.GIDIndex.Value); {
		case i == 0:
			index = own
		case own != index:
			index = ""
		}
	}
	env["NCCL_IB_ROCE_VERSION_NUM"] = "2"
	// UCX silently drops datagrams, with which it also connects, if the driver does not say that they came by IPv4 in a
	// field that Mellanox' alone fills (openucx/ucx#10209).
	if slices.ContainsFunc(ports, func(p agentapi.HCA) bool { return p.Driver != "mlx5_core" }) {
		env["UCX_UD_VERBS_ETH_DGID_CHECK"] = "n"
	}
	if index != "" {
		env["NCCL_IB_GID_INDEX"], env["UCX_IB_GID_INDEX"], env["NVSHMEM_IB_GID_INDEX"] = index, index, index
	}
}

// network returns the variables that name the node's interfaces, ports and address, and what follows from them.
func network(spec agentapi.LeaseSpec, rdma []agentapi.HCA) map[string]string {
	env := map[string]string{
		"MUSTER_HOSTFILE": nodeDir + "/hostfile",

		// "=ovl0" is NCCL's exact match; without "=" it is a prefix.
		"NCCL_SOCKET_IFNAME": "=ovl0",
		"NCCL_SOCKET_FAMILY": "AF_INET",
		"NCCL_IB_DISABLE":    "1",
		"GLOO_SOCKET_IFNAME": "ovl0",
		"TP_SOCKET_IFNAME":   "ovl0",
		"UCX_NET_DEVICES":    "ovl0",
		// NCCL distinguishes nodes by host name and boot ID, and ranks on one machine share the boot ID.
		"NCCL_HOSTID": cmp.Or(spec.Node, "node-"+strconv.Itoa(spec.Rank)),
		// NVSHMEM bootstraps over the overlay, and without RDMA it has no other transport.
		"NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "ovl0",
		"NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY": "AF_INET",
		"NVSHMEM_REMOTE_TRANSPORT":          "none",
		// NVLink between machines (NVL72 racks) needs an IMEX channel in the container, which no node has: NCCL fails where
		// it finds such links and cannot use them.
		"NCCL_MNNVL_ENABLE":     "0",
		"NVSHMEM_DISABLE_MNNVL": "1",

		"OMPI_MCA_btl_tcp_if_include": "ovl0",
		"OMPI_MCA_oob_tcp_if_include": "ovl0",
	}
	useRDMA(env, spec, rdma)
	return env
}

// launch returns the variables with which launchers and frameworks start their processes and find the other nodes, and
// settings of libraries. An image may have others.
func launch(spec agentapi.LeaseSpec) map[string]string {
	gpus := max(1, len(spec.GPUs))
	master := spec.Master()
	env := map[string]string{
		"MASTER_ADDR":    master,
		"MASTER_PORT":    strconv.Itoa(agentapi.MasterPort),
		"NODE_RANK":      strconv.Itoa(spec.Rank),
		"NNODES":         strconv.Itoa(spec.Nodes),
		"NPROC_PER_NODE": strconv.Itoa(gpus),
		// torchrun's arguments: "torchrun train.py" alone starts one process per GPU on every node.
		"PET_MASTER_ADDR":    master,
		"PET_MASTER_PORT":    strconv.Itoa(agentapi.MasterPort),
		"PET_NODE_RANK":      strconv.Itoa(spec.Rank),
		"PET_NNODES":         strconv.Itoa(spec.Nodes),
		"PET_NPROC_PER_NODE": strconv.Itoa(gpus),

		"NCCL_SOCKET_NTHREADS":  "4", // a virtual device gets no helper threads by default
		"NCCL_NSOCKS_PERTHREAD": "4",
		"NCCL_DEBUG":            "WARN",
		"HOROVOD_GLOO_IFACE":    "ovl0",

		// The command with which mpirun reaches the other ranks: images have no sshd. Open MPI 4 and 5 have different
		// variables for it.
		"OMPI_MCA_plm_rsh_agent": agentapi.GuestBinary + " rsh",
		"PRTE_MCA_plm_ssh_agent": agentapi.GuestBinary + " rsh",
	}
	if spec.Nodes > 1 {
		env["PATH"] = launchers + ":" + defaultPath
		env["TF_CONFIG"] = tensorFlow(spec)
		env["JAX_COORDINATOR_ADDRESS"] = net.JoinHostPort(master, strconv.Itoa(agentapi.MasterPort))
		env["JAX_NUM_PROCESSES"], env["JAX_PROCESS_ID"] = strconv.Itoa(spec.Nodes), strconv.Itoa(spec.Rank)
	}
	if spec.Nodes > 1 && gpus == 1 {
		// A framework that sees LOCAL_RANK assumes that a launcher has started all processes: Lightning starts no others
		// and waits for them, accelerate takes one GPU of several (docs/hardware/NVIDIA-H200/frameworks.txt). So these
		// are set only where one process per node is the whole job.
		env["RANK"], env["WORLD_SIZE"] = strconv.Itoa(spec.Rank), strconv.Itoa(spec.Nodes)
		env["LOCAL_RANK"] = "0"
	}
	return env
}

// tensorFlowPort is where each node's TensorFlow server listens.
const tensorFlowPort = "2222"

// tensorFlow returns TF_CONFIG, by which MultiWorkerMirroredStrategy finds the other nodes.
func tensorFlow(spec agentapi.LeaseSpec) string {
	type task struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	config := struct {
		Cluster map[string][]string `json:"cluster"`
		Task    task                `json:"task"`
	}{map[string][]string{"worker": make([]string, spec.Nodes)}, task{"worker", spec.Rank}}
	for rank := range spec.Nodes {
		config.Cluster["worker"][rank] = fmt.Sprintf("node-%d:%s", rank, tensorFlowPort)
	}
	b, err := json.Marshal(config)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(b)
}
