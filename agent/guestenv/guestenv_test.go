package guestenv

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

func spec() agentapi.LeaseSpec {
	return agentapi.LeaseSpec{
		Rank: 1, Nodes: 2, GPUs: []string{"GPU-a", "GPU-b", "GPU-c", "GPU-d"},
		Env: map[string]string{"EPOCHS": "3", "NCCL_DEBUG": "INFO", "PATH": "/opt/bin"},
		Network: agentapi.Network{CIDR: "10.77.0.0/20", Address: "10.77.0.2",
			Peers: []agentapi.Peer{{Rank: 0, Address: "10.77.0.1"}}},
	}
}

const golden = `EPOCHS=3
GLOO_SOCKET_IFNAME=ovl0
LOCAL_RANK=0
MASTER_ADDR=10.77.0.1
MASTER_PORT=29500
MUSTER_HOSTFILE=/run/muster/node/hostfile
NCCL_DEBUG=INFO
NCCL_HOSTID=node-1
NCCL_IB_DISABLE=1
NCCL_NSOCKS_PERTHREAD=4
NCCL_SOCKET_FAMILY=AF_INET
NCCL_SOCKET_IFNAME==ovl0
NCCL_SOCKET_NTHREADS=4
NNODES=2
NODE_RANK=1
NPROC_PER_NODE=4
NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics,video,compat32
NVIDIA_VISIBLE_DEVICES=void
NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY=AF_INET
NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME=ovl0
NVSHMEM_REMOTE_TRANSPORT=none
OMPI_MCA_btl_tcp_if_include=ovl0
OMPI_MCA_oob_tcp_if_include=ovl0
OMPI_MCA_plm_rsh_agent=/run/muster/guest rsh
PATH=/opt/bin
PRTE_MCA_plm_ssh_agent=/run/muster/guest rsh
RANK=1
TP_SOCKET_IFNAME=ovl0
UCX_NET_DEVICES=ovl0
WORLD_SIZE=2`

func TestBuild(t *testing.T) {
	t.Parallel()
	got, err := Build(spec(), "void", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(golden, strings.Join(got, "\n")); diff != "" {
		t.Error(diff)
	}
	alone := spec()
	alone.Rank, alone.Nodes, alone.GPUs, alone.Env = 0, 1, nil, nil
	alone.Network.Address, alone.Network.Peers = "10.77.0.1", nil
	got, err = Build(alone, "void", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"MASTER_ADDR=10.77.0.1", "WORLD_SIZE=1", "NPROC_PER_NODE=1"} {
		if !strings.Contains(strings.Join(got, "\n")+"\n", want+"\n") {
			t.Errorf("one node without GPUs: no %s in %q", want, got)
		}
	}
}

func TestRefusesDeviceVariables(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "nvidia_x", "", "A=B", "A\x00"} {
		s := spec()
		s.Env = map[string]string{name: "all"}
		if env, err := Build(s, "void", nil, ""); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v, %q", name, err, env)
		}
	}
}

// What an image says to NVIDIA's runtime does not count: some of it adds devices of the host to the container.
func TestAnImageChoosesNoDevices(t *testing.T) {
	t.Parallel()
	image := []string{"PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all", "NVIDIA_MOFED=enabled",
		"NVIDIA_GDS=enabled",
		"NVIDIA_GDRCOPY=enabled", "NVIDIA_NVSWITCH=enabled", "NVIDIA_IMEX_CHANNELS=0", "NVIDIA_MIG_CONFIG_DEVICES=all",
		"NVIDIA_TOMORROW"}
	env, err := Build(spec(), "GPU-a", image, "")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"NVIDIA_VISIBLE_DEVICES":     "GPU-a",
		"NVIDIA_DRIVER_CAPABILITIES": "compute,utility,graphics,video,compat32",
		"PATH":                       "/opt/bin",
	}
	got := map[string]string{}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		got[k] = v
	}
	for _, kv := range image {
		k, _, _ := strings.Cut(kv, "=")
		if v, ok := got[k]; !ok || v != want[k] {
			t.Errorf("%s is %q (set: %t), want %q", k, v, ok, want[k])
		}
	}
}

// With RDMA, the libraries use exactly the node's ports; bootstraps stay on the overlay. A renter may turn it off.
func TestRDMA(t *testing.T) {
	t.Parallel()
	ib := agentapi.HCA{Device: "mlx5_0", Port: 1, Driver: "mlx5_core"}
	other := agentapi.HCA{Device: "mlx5_3", Port: 2, Driver: "mlx5_core"}
	efa := agentapi.HCA{Device: "rdmap0", Port: 1, Driver: "efa"}
	roce := func(device string, gid int) agentapi.HCA {
		return agentapi.HCA{Device: device, Port: 1, Driver: "mlx5_core", LinkLayer: "Ethernet",
			GIDIndex: agentapi.Known(gid)}
	}
	soft := roce("rxe0", 1)
	soft.Driver = "rdma_rxe"
	for _, tc := range []struct {
		name  string
		ports []agentapi.HCA
		own   map[string]string
		want  map[string]string
	}{
		{"InfiniBand", []agentapi.HCA{ib, other}, nil, map[string]string{
			"NCCL_IB_HCA": "=mlx5_0:1,mlx5_3:2", "NCCL_IB_DISABLE": "", "UCX_NET_DEVICES": "mlx5_0:1,mlx5_3:2,ovl0",
			"NVSHMEM_HCA_LIST": "mlx5_0:1,mlx5_3:2", "NVSHMEM_REMOTE_TRANSPORT": "ibrc", "NCCL_SOCKET_IFNAME": "=ovl0",
			"NCCL_IB_GID_INDEX": "", "NCCL_IB_ROCE_VERSION_NUM": "",
		}},
		{"a cloud's", []agentapi.HCA{efa}, nil, map[string]string{
			"FI_PROVIDER": "efa", "NCCL_IB_HCA": "", "NCCL_IB_DISABLE": "", "UCX_NET_DEVICES": "ovl0",
		}},
		{"RoCE", []agentapi.HCA{roce("mlx5_0", 3), roce("mlx5_1", 3)}, nil, map[string]string{
			"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1", "NCCL_IB_DISABLE": "", "UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1,ovl0",
			"NCCL_IB_GID_INDEX": "3", "UCX_IB_GID_INDEX": "3", "NVSHMEM_IB_GID_INDEX": "3", "NCCL_IB_ROCE_VERSION_NUM": "2",
			"UCX_UD_VERBS_ETH_DGID_CHECK": "",
		}},
		{"RoCE of another driver", []agentapi.HCA{soft}, nil, map[string]string{
			"UCX_IB_GID_INDEX": "1", "UCX_UD_VERBS_ETH_DGID_CHECK": "n",
		}},
		{"RoCE at several indexes", []agentapi.HCA{roce("mlx5_0", 3), roce("mlx5_1", 5)}, nil, map[string]string{
			"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1", "NCCL_IB_GID_INDEX": "", "UCX_IB_GID_INDEX": "",
			"NCCL_IB_ROCE_VERSION_NUM": "2",
		}},
		{"the renter's own index", []agentapi.HCA{roce("mlx5_0", 3)}, map[string]string{"NCCL_IB_GID_INDEX": "1"},
			map[string]string{"NCCL_IB_GID_INDEX": "1"}},
		{"none", nil, nil, map[string]string{"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": "", "UCX_NET_DEVICES": "ovl0"}},
		{"turned off", []agentapi.HCA{ib}, map[string]string{"NCCL_IB_DISABLE": "1"},
			map[string]string{"NCCL_IB_DISABLE": "1"}},
	} {
		s := spec()
		s.Env = tc.own
		env, err := Build(s, "void", nil, "", tc.ports...)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, kv := range env {
			k, v, _ := strings.Cut(kv, "=")
			got[k] = v
		}
		for k, want := range tc.want {
			if got[k] != want {
				t.Errorf("%s: %s is %q, want %q", tc.name, k, got[k], want)
			}
		}
	}
}
