//go:build machine

package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/devstack"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

// lends gives the machine a RoCE port in software, on the network port by which it reaches the others, and makes it a
// host that lends it.
func (v *virtual) lends(t *testing.T) {
	t.Helper()
	v.fabric = "rack"
	v.AwaitUp("")
	v.Do("modprobe rdma_rxe && modprobe rdma_ucm && rdma link add rxe0 type rxe netdev " +
		"$(ip -o -4 addr show scope global | awk '$2 ~ /^en/ {print $2; exit}')")
	v.install(t, "--fabric-device", "rxe0")
	v.sells(t)
	until(t, v.Name+" is offered with RDMA", func() error {
		page, err := v.w.Operator.Offers.Search(t.Context(), client.OffersQuery{PageOf: client.PageOf{},
			Q: "rdma_gbps > 0 host_name=" + v.Name, Sort: ""})
		if err == nil && page.Total == 0 {
			err = fmt.Errorf("no such offer: %+v", page.Explain)
		}
		return err
	})
}

// sent returns how many RDMA packets the machine's port has sent.
func (v *virtual) sent(t *testing.T) int {
	t.Helper()
	out := v.Do("cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts")
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// output runs a command on a rank over SSH and returns what it prints.
func (r *renter) output(t *testing.T, c client.Cluster, rank int, command string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := r.Clusters.SSH(ctx, c.ID, rank)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	session, err := conn.NewSession()
	if err != nil {
		return "", err
	}
	out, err := session.CombinedOutput(command)
	return string(out), err
}

// allReduce adds up 4 MiB of every process and prints the sum. UCX may use the RDMA port and nothing else: reliable
// connections, which it sets up with datagrams (rc_v is both).
const allReduce = `cat >/tmp/sum.py <<'END'
from array import array
from mpi4py import MPI
world = MPI.COMM_WORLD
mine, total = array('d', [world.rank + 1.0]) * (1 << 19), array('d', [0.0]) * (1 << 19)
world.Allreduce(mine, total)
print("process", world.rank, "of", world.size, "has", set(total), flush=True)
END
`

// Three machines of one fabric, each with a RoCE port in software. Two are rented with RDMA: verbs carry a ping and an
// all-reduce between them. The third is rented by another organisation, which gets no RDMA in this fabric: no offer
// with it, and no device in its container.
func TestMachinesWithRDMA(t *testing.T) {
	tarFile := os.Getenv("MUSTER_TEST_RDMA")
	if tarFile == "" {
		t.Fatal("MUSTER_TEST_RDMA names no image: run make test-machine, which makes one")
	}
	w := newWorld(t)
	outside := &platform{Info: devstack.Info{DemoImage: w.Images + "/muster/demo:latest"}}
	image := w.Pulled(outside.debianImage(t, "rdma", tarFile))
	machines := map[string]*virtual{}
	for _, v := range []*virtual{
		w.boot(t, "rdma-a", "203.0.113.70/24", 2048), w.boot(t, "rdma-b", "203.0.113.71/24", 2048),
	} {
		v.lends(t)
		machines[v.id.String()] = v
	}

	r := w.renter(t, 50*money.Unit)
	s := w.spec(2, 2, "sleep", "86400")
	s.Image, s.DiskGB, s.Network = image, 4, &client.Network{Fabric: "rdma"}
	c := r.run(t, s)
	a := machines[c.Nodes[0].HostID.String()]
	devices := "ls /dev/infiniband | sort | tr '\n' ' '; ulimit -l; env | grep -E '^(NCCL_IB|UCX)_' | sort; ibv_devinfo -l"
	for rank := range 2 {
		out, err := r.output(t, c, rank, devices)
		t.Logf("rank %d: %v\n%s", rank, err, out)
		for _, want := range []string{"rdma_cm uverbs0 unlimited", "NCCL_IB_GID_INDEX=1", "NCCL_IB_HCA==rxe0:1",
			"UCX_NET_DEVICES=rxe0:1,ovl0"} {
			if !strings.Contains(strings.ReplaceAll(out, "\n", " "), want) {
				t.Errorf("rank %d has no %s", rank, want)
			}
		}
	}

	before := a.sent(t)
	served := make(chan string, 1)
	go func() {
		out, err := r.output(t, c, 0, "ibv_rc_pingpong -d rxe0 -g $NCCL_IB_GID_INDEX -n 500")
		served <- fmt.Sprintf("%v\n%s", err, out)
	}()
	var pinged string
	eventually(t, "a ping by verbs", func() bool {
		out, err := r.output(t, c, 1, "ibv_rc_pingpong -d rxe0 -g $NCCL_IB_GID_INDEX -n 500 $MASTER_ADDR")
		pinged = out
		return err == nil
	})
	t.Logf("%s\n%s", pinged, <-served)
	if sent := a.sent(t) - before; sent < 500 {
		t.Errorf("the port sent %d packets for 500 pings of 4096 bytes:\n%s", sent, pinged)
	}

	before = a.sent(t)
	out, err := r.output(t, c, 1, allReduce)
	if err == nil {
		out, err = r.output(t, c, 0, allReduce+"export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"+
			"mpirun --hostfile $MUSTER_HOSTFILE --map-by ppr:1:node --bind-to none --mca pml ucx -x UCX_TLS=rc_v,self "+
			"-x UCX_NET_DEVICES=rxe0:1 -x UCX_IB_GID_INDEX -x UCX_UD_VERBS_ETH_DGID_CHECK python3 /tmp/sum.py")
	}
	t.Logf("all-reduce: %v\n%s", err, out)
	for rank := range 2 {
		if want := fmt.Sprintf("process %d of 2 has {3.0}", rank); err != nil || !strings.Contains(out, want) {
			t.Errorf("not said: %s", want)
		}
	}
	if sent := a.sent(t) - before; sent < 4<<20/4096 {
		t.Errorf("the port sent %d packets for an all-reduce of 4 MiB", sent)
	}

	w.stranger(t, s, a)
	if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	r.settle(t, c)
	w.check(t)
}

// stranger is another organisation, on the fabric's third machine.
func (w *world) stranger(t *testing.T, s client.Spec, rented *virtual) {
	t.Helper()
	w.boot(t, "rdma-c", "203.0.113.72/24", 2048).lends(t)
	o := w.renter(t, 50*money.Unit)
	_, err := o.Clusters.Rent(t.Context(), s)
	f := fault.From(err)
	if f == nil || f.Kind != fault.NoCapacity ||
		!strings.Contains(fmt.Sprint(f.Extra["explain"]), "no other organisation rents the fabric") {
		t.Errorf("RDMA in another's fabric: %v %+v", err, f)
	}
	plain := w.spec(1, 2, "sleep", "86400")
	plain.Image, plain.DiskGB = s.Image, s.DiskGB
	c := o.run(t, plain)
	out, _ := o.output(t, c, 0,
		"ls -d /dev/infiniband; ibv_devinfo -l; ibv_rc_pingpong -d rxe0 -g 1 "+rented.Address.String())
	t.Logf("without RDMA:\n%s", out)
	if !strings.Contains(out, "cannot access '/dev/infiniband'") || strings.Contains(out, "remote address") {
		t.Errorf("a node without RDMA has a device of it:\n%s", out)
	}
	if _, err := o.Clusters.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	o.settle(t, c)
}
