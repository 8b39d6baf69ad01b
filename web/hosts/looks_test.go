package hosts

import (
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

func TestAHostShowsWhichGPUsAreNearWhichProcessors(t *testing.T) {
	t.Parallel()
	i := agentapi.Inventory{
		NUMA: []agentapi.NUMANode{{Node: 0, CPUs: "0-7", MemoryMB: 1 << 10}, {Node: 1, CPUs: "8-15", MemoryMB: 1 << 10}},
		GPUs: []agentapi.GPU{{Index: 0, NUMANode: agentapi.Known(1)}, {Index: 1, NUMANode: agentapi.Known(1)}, {Index: 2}},
	}
	if got, want := numaText(i), "0: threads 0-7, 1 GiB; 1: threads 8-15, 1 GiB, GPU 0 1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	ports := nicsText([]agentapi.NIC{{Name: "eth0", Up: true}, {Name: "eth1"},
		{Name: "ens1np0", Up: true, SpeedMbps: 2500, Driver: "mlx5_core", RDMA: "mlx5_0", Underlay: true}})
	if want := "eth0; ens1np0 (2.5 Gbit/s, mlx5_core, mlx5_0, first choice between hosts)"; ports != want {
		t.Errorf("%q, want %q", ports, want)
	}
	i.NUMA = i.NUMA[:1]
	if got := numaText(i); got != "" {
		t.Errorf("one node: %q", got)
	}
}
