package hostinfo_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/machine/hostinfo/sysfstest"
	"github.com/musterhq/muster/internal/agentapi"
)

func TestNICs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	port := func(name, pci, driver, speed, state, numa, rdma string) {
		at := "devices/" + pci
		sysfstest.Link(t, root, "class/net/"+name+"/device", at)
		sysfstest.Link(t, root, at+"/driver", "bus/pci/drivers/"+driver)
		sysfstest.Write(t, root, at+"/numa_node", numa+"\n")
		if rdma != "" {
			sysfstest.Write(t, root, at+"/infiniband/"+rdma+"/node_type", "1: CA\n")
		}
		sysfstest.Write(t, root, "class/net/"+name+"/speed", speed+"\n")
		sysfstest.Write(t, root, "class/net/"+name+"/operstate", state+"\n")
	}
	port("enp24s0np0", "0000:18:00.0", "mlx5_core", "400000", "up", "0", "mlx5_0")
	port("enp170s0f0", "0000:aa:00.0", "ice", "-1", "down", "-1", "")
	for _, name := range []string{"lo", "docker0", "veth1", "bond0"} {
		sysfstest.Write(t, root, "class/net/"+name+"/operstate", "up\n")
	}
	sysfstest.Write(t, root, "class/net/bond0/bonding/mode", "802.3ad 4\n")
	sysfstest.Write(t, root, "class/net/bond0/speed", "50000\n")
	want := []agentapi.NIC{{Name: "bond0", SpeedMbps: 50000, Up: true}, {Name: "enp170s0f0", Driver: "ice"},
		{Name: "enp24s0np0", SpeedMbps: 400000, Up: true, Driver: "mlx5_core", NUMANode: agentapi.Known(0), RDMA: "mlx5_0"}}
	if diff := cmp.Diff(want, hostinfo.NICs(root)); diff != "" {
		t.Error(diff)
	}
	if all := hostinfo.NICs(root, "veth1"); len(all) != 4 || all[3].Name != "veth1" {
		t.Errorf("with one that the operator has named: %+v", all)
	}
	if none := hostinfo.NICs(t.TempDir()); none != nil {
		t.Errorf("%+v", none)
	}
}
