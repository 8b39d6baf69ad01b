package container

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/container"

	"github.com/musterhq/muster/internal/agentapi"
)

// A workload gets the verbs of its ports and the connection manager, and nothing else: no other port's verbs, nothing
// that manages the fabric, no capability.
func TestRDMAIsExactlyThePortsGiven(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"uverbs0", "uverbs1", "uverbs2", "umad0", "issm0", "rdma_cm"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	given := func(ports ...agentapi.HCA) ([]string, *container.HostConfig) {
		hc := &container.HostConfig{CapDrop: []string{"ALL"}, CapAdd: workCaps}
		addRDMA(hc, dir, ports)
		var names []string
		for _, d := range hc.Devices {
			if d.PathOnHost != filepath.Join(dir, filepath.Base(d.PathInContainer)) || d.CgroupPermissions != "rw" {
				t.Errorf("%+v", d)
			}
			names = append(names, d.PathInContainer)
		}
		return names, hc
	}
	names, hc := given(agentapi.HCA{Device: "mlx5_0", Port: 1, Verbs: "uverbs0"},
		agentapi.HCA{Device: "mlx5_2", Port: 1, Verbs: "uverbs2"}, agentapi.HCA{Device: "mlx5_2", Port: 2, Verbs: "uverbs2"})
	want := []string{"/dev/infiniband/uverbs0", "/dev/infiniband/uverbs2", "/dev/infiniband/rdma_cm"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if len(hc.CapAdd) != len(workCaps) || hc.Privileged {
		t.Errorf("capabilities %v", hc.CapAdd)
	}
	if names, _ := given(); len(names) > 0 {
		t.Errorf("a workload without RDMA gets %v", names)
	}
}
