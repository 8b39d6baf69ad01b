package guestenv

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

func spec() agentapi.LeaseSpec {
	return agentapi.LeaseSpec{
		Rank: 1, Nodes: 2, GPUs: []string{"GPU-a", "GPU-b", "GPU-c", "GPU-d"},
		Env: map[string]string{"EPOCHS": "3", "PATH": "/opt/bin"},
		Network: agentapi.Network{CIDR: "10.77.0.0/20", Address: "10.77.0.2",
			Peers: []agentapi.Peer{{Rank: 0, Address: "10.77.0.1"}}},
	}
}

var update = flag.Bool("update", false, "write the golden files")

// The environments of the usual shapes, as golden files: which variables are there, and which are not.
func TestBuild(t *testing.T) {
	t.Parallel()
	for name, shape := range map[string]struct{ nodes, gpus int }{
		"one node, no GPU": {1, 0}, "one node, one GPU": {1, 1}, "one node, eight GPUs": {1, 8},
		"two nodes, one GPU": {2, 1}, "two nodes, eight GPUs": {2, 8},
	} {
		s := spec()
		s.Nodes, s.Rank, s.GPUs = shape.nodes, shape.nodes-1, nil
		for i := range shape.gpus {
			s.GPUs = append(s.GPUs, fmt.Sprint("GPU-", i))
		}
		if s.Nodes == 1 {
			s.Network.Address, s.Network.Peers = "10.77.0.1", nil
		}
		env, err := Build(s, "void", nil, "")
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(env, "\n") + "\n"
		path := filepath.Join("testdata", fmt.Sprintf("%dx%d.golden", shape.nodes, shape.gpus))
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-update writes it):\n%s", name, diff)
		}
	}
}

// A framework that finds LOCAL_RANK starts no processes: it is set only where one process per node is the whole job.
func TestRankIsSetForOneProcessPerNode(t *testing.T) {
	t.Parallel()
	for shape, want := range map[[2]int]bool{{1, 0}: false, {1, 1}: false, {1, 8}: false, {2, 0}: true, {2, 1}: true,
		{2, 2}: false, {64, 8}: false} {
		s := spec()
		s.Nodes, s.GPUs = shape[0], make([]string, shape[1])
		env, err := Build(s, "void", nil, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"RANK", "WORLD_SIZE", "LOCAL_RANK"} {
			has := slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
			if has != want {
				t.Errorf("%d nodes with %d GPUs: %s is set: %t", shape[0], shape[1], name, has)
			}
		}
	}
}

func TestRefusesDeviceVariables(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
		"nvidia_visible_devices", "NVIDIA_REQUIRE_CUDA", "NVIDIA_IMEX_CHANNELS", "NVIDIA_MIG_MONITOR_DEVICES",
		"NVIDIA_GDS", "NVIDIA_CTK_DEBUG", "", "A=B", "A\x00"} {
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
		"NVIDIA_REQUIRE_CUDA=cuda>=99", "NVIDIA_DISABLE_REQUIRE"}
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

// Other variables of NVIDIA's are the renter's and the image's, and what an image says about its programs holds. It
// cannot know the node's network.
func TestAnImageKeepsItsVariables(t *testing.T) {
	t.Parallel()
	s := spec()
	s.Env = map[string]string{"NVIDIA_API_KEY": "nvapi-x", "NVIDIA_TF32_OVERRIDE": "0"}
	image := []string{"NVIDIA_PYTORCH_VERSION=24.05", "PET_NNODES=1", "TF_CONFIG={}", "HOROVOD_GLOO_IFACE=eth0",
		"NCCL_DEBUG=INFO", "NCCL_SOCKET_IFNAME=eth0", "MASTER_PORT=1234", "PATH=/opt/conda/bin:/bin"}
	env, err := Build(s, "void", image, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NVIDIA_API_KEY=nvapi-x", "NVIDIA_TF32_OVERRIDE=0", "NCCL_SOCKET_IFNAME==ovl0",
		"PATH=/run/muster/node/bin:/opt/conda/bin:/bin"} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is not set", want)
		}
	}
	for _, kv := range image[:5] { // Docker sets these
		name, _, _ := strings.Cut(kv, "=")
		if slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }) {
			t.Errorf("the image's %s is overwritten", kv)
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
