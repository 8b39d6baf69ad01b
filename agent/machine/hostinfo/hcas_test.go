package hostinfo_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/machine/hostinfo/sysfstest"
	"github.com/musterhq/muster/internal/agentapi"
)

// RDMA ports are listed with and without a network port: an InfiniBand rail, a RoCE port that is down, and a bridge of
// the GPUs' switches. The tree has the files of a kernel's.
func TestHCAs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	device := func(i int, bus, layer, state, rate string) string {
		name := fmt.Sprintf("mlx5_%d", i)
		pci := "devices/pci0000:00/" + bus
		at := "class/infiniband/" + name
		sysfstest.Link(t, root, at+"/device", pci)
		sysfstest.Link(t, root, pci+"/driver", "bus/pci/drivers/mlx5_core")
		sysfstest.Write(t, root, pci+"/numa_node", fmt.Sprintln(i%2))
		sysfstest.Write(t, root, at+"/node_guid", fmt.Sprintf("b83f:d203:0012:34%02x\n", i))
		port := at + "/ports/1/"
		sysfstest.Write(t, root, port+"link_layer", layer+"\n")
		sysfstest.Write(t, root, port+"state", state+"\n")
		sysfstest.Write(t, root, port+"rate", rate+"\n")
		sysfstest.Write(t, root, port+"gids/0", fmt.Sprintf("fe80:0000:0000:0000:b83f:d203:0012:34%02x\n", i))
		for k, key := range []string{"0xffff", "0x8001", "0x0000"} {
			sysfstest.Write(t, root, fmt.Sprintf("%spkeys/%d", port, k), key+"\n")
		}
		sysfstest.Write(t, root, fmt.Sprintf("class/infiniband_verbs/uverbs%d/ibdev", i), name+"\n")
		return pci
	}
	device(0, "0000:18:00.0", "InfiniBand", "4: ACTIVE", "400 Gb/sec (4X NDR)")
	roce := device(1, "0000:19:00.0", "Ethernet", "1: DOWN", "40 Gb/sec (4X QDR)")
	sysfstest.Write(t, root, roce+"/net/enp25s0/operstate", "down\n")
	bridge := device(2, "0000:c0:00.0", "InfiniBand", "4: ACTIVE", "400 Gb/sec (4X NDR)")
	sysfstest.Write(t, root, bridge+"/vpd", "\x82\x20\x00NVIDIA\x90V0SMDL=SW_MNG")
	want := []agentapi.HCA{
		{Device: "mlx5_0", Port: 1, Driver: "mlx5_core", LinkLayer: "InfiniBand", State: "ACTIVE", Gbps: 400,
			NodeGUID: "b83fd20300123400", PortGUID: "b83fd20300123400", Subnet: "fe80000000000000",
			PKeys: []string{"0xffff", "0x8001"}, PCIBus: "0000:18:00.0", NUMANode: agentapi.Known(0), Verbs: "uverbs0"},
		{Device: "mlx5_1", Port: 1, Driver: "mlx5_core", LinkLayer: "Ethernet", State: "DOWN", NodeGUID: "b83fd20300123401",
			Netdev: "enp25s0", PCIBus: "0000:19:00.0", NUMANode: agentapi.Known(1), Verbs: "uverbs1"},
		{Device: "mlx5_2", Port: 1, Driver: "mlx5_core", LinkLayer: "InfiniBand", State: "ACTIVE", Gbps: 400,
			NodeGUID: "b83fd20300123402", PortGUID: "b83fd20300123402", Subnet: "fe80000000000000",
			PKeys: []string{"0xffff", "0x8001"}, PCIBus: "0000:c0:00.0", NUMANode: agentapi.Known(0), Verbs: "uverbs2",
			NVSwitch: true},
	}
	if diff := cmp.Diff(want, hostinfo.HCAs(root)); diff != "" {
		t.Error(diff)
	}
	if got := hostinfo.HCAs(t.TempDir()); got != nil {
		t.Errorf("a machine without RDMA has %v", got)
	}
}

// A RoCE port is used by its address of RoCE v2 on its own network port; soft-RoCE, which has no hardware, is listed as
// its kernel module shows it.
func TestRoCE(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	at := "class/infiniband/rxe0"
	sysfstest.Write(t, root, at+"/node_guid", "5054:00ff:fe12:3456\n")
	sysfstest.Write(t, root, at+"/parent", "ens2\n")
	for name, content := range map[string]string{
		"link_layer": "Ethernet", "state": "4: ACTIVE", "rate": "10 Gb/sec (4X)",
	} {
		sysfstest.Write(t, root, at+"/ports/1/"+name, content+"\n")
	}
	sysfstest.Write(t, root, "class/infiniband_verbs/uverbs0/ibdev", "rxe0\n")
	gid := func(i int, gid, kind, netdev string) {
		name := fmt.Sprint(i)
		sysfstest.Write(t, root, at+"/ports/1/gids/"+name, gid+"\n")
		sysfstest.Write(t, root, at+"/ports/1/gid_attrs/types/"+name, kind+"\n")
		sysfstest.Write(t, root, at+"/ports/1/gid_attrs/ndevs/"+name, netdev+"\n")
	}
	chosen := func(want int) {
		t.Helper()
		got := hostinfo.HCAs(root)
		if len(got) != 1 || got[0].Driver != "rdma_rxe" || got[0].Netdev != "ens2" || got[0].Gbps != 10 ||
			got[0].GIDIndex.Or(-1) != want || got[0].Link() != agentapi.LinkRoCE {
			t.Errorf("want index %d: %+v", want, got)
		}
	}
	v4 := func(last int) string { return fmt.Sprintf("0000:0000:0000:0000:0000:ffff:cb00:71%02x", last) }
	gid(0, "fe80:0000:0000:0000:5054:00ff:fe12:3456", "IB/RoCE v1", "ens2")
	gid(7, "0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2", "ens2") // an empty entry
	chosen(-1)
	gid(1, "fe80:0000:0000:0000:5054:00ff:fe12:3456", "RoCE v2", "ens2")
	chosen(1)
	gid(10, v4(60), "RoCE v2", "ens2.30") // a VLAN's
	chosen(1)
	gid(4, "2001:0db8:0000:0000:0000:0000:0000:0001", "RoCE v2", "ens2")
	chosen(4)
	gid(5, v4(61), "IB/RoCE v1", "ens2")
	chosen(4)
	gid(11, v4(62), "RoCE v2", "ens2")
	chosen(11)
	gid(9, v4(63), "RoCE v2", "ens2") // the lower of two equals, not the first by name
	chosen(9)
}
