package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/machine/gpucheck/fakecuda"
	"github.com/musterhq/muster/agent/machine/hostinfo/sysfstest"
	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// rdmaTree writes what stands for a machine's RDMA devices: the files of sysfs of two InfiniBand ports, and device
// nodes with the kernel's numbers (uverbs 231:192+n, umad 231:n, issm 231:64+n). No driver is behind the nodes: a
// program that opens one gets ENXIO.
func rdmaTree(t *testing.T, host int) string {
	t.Helper()
	root := t.TempDir()
	sys := filepath.Join(root, "sys")
	for i := range 2 {
		name, pci := fmt.Sprintf("mlx5_%d", i), fmt.Sprintf("devices/pci0000:00/0000:1%d:00.0", i)
		at := "class/infiniband/" + name
		sysfstest.Link(t, sys, at+"/device", pci)
		sysfstest.Link(t, sys, pci+"/driver", "bus/pci/drivers/mlx5_core")
		sysfstest.Write(t, sys, at+"/node_guid", fmt.Sprintf("b83f:d203:00%02x:340%d\n", host, i))
		port := at + "/ports/1/"
		sysfstest.Write(t, sys, port+"link_layer", "InfiniBand\n")
		sysfstest.Write(t, sys, port+"state", "4: ACTIVE\n")
		sysfstest.Write(t, sys, port+"rate", "400 Gb/sec (4X NDR)\n")
		sysfstest.Write(t, sys, port+"gids/0", fmt.Sprintf("fe80:0000:0000:0000:b83f:d203:00%02x:340%d\n", host, i))
		sysfstest.Write(t, sys, port+"pkeys/0", "0xffff\n")
		sysfstest.Write(t, sys, fmt.Sprintf("class/infiniband_verbs/uverbs%d/ibdev", i), name+"\n")
	}
	dev := filepath.Join(root, "dev", "infiniband")
	if err := os.MkdirAll(dev, 0o755); err != nil {
		t.Fatal(err)
	}
	node := func(name string, major, minor uint32) {
		path := filepath.Join(dev, name)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))); err != nil {
			t.Fatalf("make the device node %s: %v", name, err)
		}
	}
	for i := range uint32(2) {
		node(fmt.Sprintf("uverbs%d", i), 231, 192+i)
		node(fmt.Sprintf("umad%d", i), 231, i)
		node(fmt.Sprintf("issm%d", i), 231, 64+i)
	}
	node("rdma_cm", 10, 58) // a misc device, whose minor number the kernel chooses
	return root
}

// rdmaHost starts a host of one GPU that lends one of its two RDMA ports, and puts it on the market.
func rdmaHost(t *testing.T, p *platform, operator *client.Client, n int, fabric string) {
	t.Helper()
	name := fmt.Sprintf("%s-%d", fabric, n)
	h := p.newHost(t, name, "NVIDIA H100 80GB HBM3", 1)
	cuda, nccl := fakeNCCL(t, h.uuids)
	h.env = append(h.env, "MUSTER_RDMA_TREE="+rdmaTree(t, n), "MUSTER_CUDA_LIBRARY="+cuda)
	h.flags = []string{"--fabric-device", "mlx5_0", "--fabric-nccl", nccl}
	h.sells(t, operator, name, fabric)
	eventually(t, name+" is offered with RDMA", func() bool {
		page, err := operator.Offers.Search(t.Context(), client.OffersQuery{PageOf: client.PageOf{},
			Q: "rdma_gbps = 400 host_name=" + name, Sort: ""})
		if err != nil {
			t.Fatal(err)
		}
		return page.Total == 1
	})
}

// sells enrols a host, starts its agent and puts it on the market.
func (h *newHost) sells(t *testing.T, operator *client.Client, name, fabric string) id.Host {
	t.Helper()
	e, err := operator.Hosts.CreateEnrollment(t.Context(), client.CreateEnrollmentRequest{Name: name, Region: "eu-west",
		Fabric: fabric})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := h.enroll(e.Token); err != nil {
		t.Fatalf("enrol: %v\n%s", err, out)
	}
	var who struct {
		Host id.Host `json:"host"`
	}
	if err := readJSON(filepath.Join(h.state, "identity.json"), &who); err != nil {
		t.Fatal(err)
	}
	h.start(t)
	price := money.Micro(7_000_000) // dearer than the shared hosts: no other test rents here
	eventually(t, "the host is reachable", func() bool {
		got, err := operator.Hosts.Get(t.Context(), who.Host)
		return err == nil && got.Reachable && len(got.Offers) == 1
	})
	if _, err := operator.Hosts.Change(t.Context(), who.Host,
		client.ChangeHostRequest{Price: new(price.String())}); err != nil {
		t.Fatal(err)
	}
	return who.Host
}

// fakeNCCL builds the fake CUDA library for these GPUs and the fake NCCL, which adds up over the cluster's network, and
// says that it used an RDMA port.
func fakeNCCL(t *testing.T, gpus []string) (cuda, nccl string) {
	t.Helper()
	dir := t.TempDir()
	cuda, nccl = filepath.Join(dir, "libcuda.so.1"), filepath.Join(dir, "libnccl.so.2")
	for _, err := range []error{fakecuda.Build(cuda), fakecuda.BuildNCCL(nccl), fakecuda.Save(cuda+".gpus", gpus)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return cuda, nccl
}

// showsRDMA prints what a node has of RDMA: its device nodes with their numbers, its limit of locked memory, the
// variables of the libraries, and its capabilities.
const showsRDMA = `$| = 1;
if (opendir(my $d, "/dev/infiniband")) {
  for my $n (sort grep { !/^\./ } readdir $d) {
    my $r = (stat "/dev/infiniband/$n")[6];
    printf "device: %s %d:%d\n", $n, ($r >> 8) & 0xfff, ($r & 0xff) | (($r >> 12) & 0xfff00);
    print "open $n: ", (open(my $f, "+<", "/dev/infiniband/$n") ? "yes" : "$!"), "\n" if $n =~ /uverbs/;
  }
} else { print "no folder of devices\n" }
open(my $l, "<", "/proc/self/limits"); while (<$l>) { print "limit: ", join(" ", split), "\n" if /locked/ }
open(my $s, "<", "/proc/self/status"); while (<$s>) { print "status: ", join(" ", split), "\n" if /CapBnd/ }
print "env: $_=$ENV{$_}\n" for sort grep { /^(NCCL_IB|UCX_NET|NVSHMEM_HCA)/ } keys %ENV;
print "shown\n";
sleep 1 while 1;
`

// A renter rents the whole hosts of a fabric with RDMA: each node has exactly the port that its operator lends, may
// lock memory, and finds the port in its libraries' variables; nothing with which it could manage the fabric, and no
// capability more than a node without RDMA. No other organisation gets RDMA in this fabric until the cluster is
// released; without RDMA, it rents the fabric's third host.
func TestAClusterWithRDMA(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	operator := p.as(t, p.OperatorToken)
	fabric := "rack-" + id.New[id.Host]().String()[5:13]
	for n := range 3 {
		rdmaHost(t, p, operator, n, fabric)
	}
	dear := 100 * money.Micro(money.Unit/1000)
	spec := p.spec(2, 1, "perl", "-e", showsRDMA)
	spec.Image, spec.MaxPricePerHour, spec.GPU = p.shellImage(t), &dear, "fabric="+fabric
	spec.Network = &client.Network{Fabric: "rdma"}
	shown := func(r *renter, c client.Cluster, rank int) (lines string) {
		t.Helper()
		eventually(t, "the node has shown what it has", func() bool {
			lines = r.logs(t, c, rank)
			return strings.Contains(lines, "shown\n")
		})
		return lines
	}

	r := p.renter(t, 50*money.Unit)
	c := r.run(t, spec)
	for rank := range 2 {
		want := "device: rdma_cm 10:58\ndevice: uverbs0 231:192\nopen uverbs0: No such device or address\n" +
			"limit: Max locked memory " + lockable(t) + " bytes\n"
		got := shown(r, c, rank)
		if !strings.HasPrefix(got, want) {
			t.Errorf("rank %d has other devices than it should:\n%s", rank, got)
		}
		for _, line := range []string{"env: NCCL_IB_HCA==mlx5_0:1", "env: UCX_NET_DEVICES=mlx5_0:1,ovl0",
			"env: NVSHMEM_HCA_LIST=mlx5_0:1"} {
			if !strings.Contains(got, line+"\n") {
				t.Errorf("rank %d has no %s:\n%s", rank, line, got)
			}
		}
		if strings.Contains(got, "NCCL_IB_DISABLE") {
			t.Errorf("rank %d: NCCL does not use the port:\n%s", rank, got)
		}
	}

	if c, err := r.Clusters.Get(t.Context(), c.ID); err != nil || c.Network.RDMA == nil || c.Network.RDMA.BusbwGbps <= 0 ||
		c.Network.RDMA.Detail != "" || c.Network.RDMA.NCCL != "2.21.5" {
		t.Errorf("the ranks measured no RDMA network: %+v (%v)", c.Network.RDMA, err)
	}

	o := p.renter(t, 50*money.Unit)
	_, err := o.Clusters.Rent(t.Context(), spec)
	if f := fault.From(err); f == nil || f.Kind != fault.NoCapacity ||
		!strings.Contains(fmt.Sprint(f.Extra["explain"]), "no other organisation rents the fabric") {
		t.Errorf("RDMA in another organisation's fabric: %v", err)
	}
	plain := spec
	plain.Nodes, plain.Network = 1, nil
	without := o.run(t, plain)
	got := shown(o, without, 0)
	if !strings.HasPrefix(got, "no folder of devices\n") || !strings.Contains(got, "env: NCCL_IB_DISABLE=1\n") ||
		strings.Contains(got, "NCCL_IB_HCA") {
		t.Errorf("a node without RDMA has something of it:\n%s", got)
	}
	if capabilities(got) == "" || capabilities(got) != capabilities(r.logs(t, c, 0)) {
		t.Errorf("a node with RDMA has other capabilities:\n%s\n%s", r.logs(t, c, 0), got)
	}
	release := func(r *renter, c client.Cluster) {
		t.Helper()
		if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
		r.settle(t, c)
	}
	release(o, without)
	release(r, c)
	eventually(t, "the offers of both hosts say what was measured", func() bool {
		page, err := operator.Offers.Search(t.Context(), client.OffersQuery{PageOf: client.PageOf{},
			Q: "busbw_rdma > 0 fabric=" + fabric, Sort: ""})
		return err == nil && page.Total == 2
	})

	var again client.Cluster
	eventually(t, "the fabric is free for the other organisation", func() bool {
		var err error
		again, err = o.Clusters.Rent(t.Context(), spec)
		if err != nil && fault.From(err).Kind != fault.NoCapacity {
			t.Fatal(err)
		}
		return err == nil
	})
	o.await(t, again, client.Running)
	release(o, again)
}

// lockable is how much memory a node with RDMA may lock: any amount, except where this machine's root may not allow it.
func lockable(t *testing.T) string {
	t.Helper()
	may, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &own); err != nil {
		t.Fatal(err)
	}
	if may != 0 || own.Max == unix.RLIM_INFINITY {
		return "unlimited unlimited"
	}
	return fmt.Sprintf("%d %d", own.Max, own.Max)
}

// capabilities returns the line of a node's capabilities.
func capabilities(log string) string {
	_, line, _ := strings.Cut(log, "status: CapBnd:")
	line, _, _ = strings.Cut(line, "\n")
	return line
}
