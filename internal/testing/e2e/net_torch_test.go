//go:build net && torch

package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/devstack"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// PyTorch's DistributedDataParallel over three hosts behind three routers trains, again and again; one host is cut off
// in the midst of it, another takes its rank, and every training that ends has the same parameters on every rank.
func TestNetTorch(t *testing.T) {
	tarFile := os.Getenv("MUSTER_TEST_TORCH")
	if tarFile == "" {
		t.Fatal("MUSTER_TEST_TORCH names no image: run make test-torch, which makes one")
	}
	f := &field{world: newWorld(t)}
	f.cone = f.Box(t, "cone", f.Home(testnet.Preserving), "192.168.1.1", "1.00", "192.168.1.10/24")
	f.symA = f.Box(t, "sym-a", f.Home(testnet.Symmetric), "192.168.1.1", "1.00", "192.168.1.10/24")
	f.symB = f.Box(t, "sym-b", f.Home(testnet.Symmetric), "192.168.1.1", "1.00", "192.168.1.10/24")
	f.spare = f.Box(t, "spare", f.Internet, "", "3.00", "203.0.113.50/24")
	outside := &platform{Info: devstack.Info{DemoImage: f.Images + "/muster/demo:latest"}}
	s := replaceable(f.spec(3, 1, "sh", "-c", "while python3 ddp.py; do :; done; exit 1"))
	s.Image, s.DiskGB, s.Env = f.Pulled(outside.torchImage(t, tarFile)), 20, map[string]string{"OMP_NUM_THREADS": "1"}
	r := f.renter(t, 100*money.Unit)
	once := s // on all four, so that the spare has the image too
	once.Nodes, once.Command, once.OnNodeFailure = 4, []string{"sh", "-c", "exec python3 ddp.py"}, "fail"
	first := r.await(t, r.rent(t, once), client.Released)
	trained(4)(t, r.logs(t, first, 0)+r.logs(t, first, 1)+r.logs(t, first, 2)+r.logs(t, first, 3))
	paid := r.settle(t, first)
	c := r.run(t, s)
	// ended counts the trainings that each rank has ended, and collects their results.
	ended := func(c client.Cluster) (counts []int, results map[string]bool) {
		counts, results = make([]int, len(c.Nodes)), map[string]bool{}
		for rank := range c.Nodes {
			for _, m := range ddpResult.FindAllStringSubmatch(r.logs(t, c, rank), -1) {
				counts[rank]++
				results[strings.Join(m[3:], " ")] = true
			}
		}
		return counts, results
	}
	var results map[string]bool
	onMore := func(c client.Cluster, before []int) {
		eventually(t, "every rank ends another training", func() bool {
			var counts []int
			counts, results = ended(c)
			for rank := range counts {
				if counts[rank] <= before[rank] {
					return false
				}
			}
			return true
		})
		if len(results) != 1 {
			t.Errorf("the trainings ended with different results: %v", results)
		}
	}
	onMore(c, make([]int, len(c.Nodes)))
	f.symB.Link.Set(testnet.Fault{Cut: true})
	now := f.awaitReplaced(t, r, c, f.symB)
	before, _ := ended(now)
	onMore(now, before)
	t.Log(results)
	f.symB.Link.Set(testnet.Fault{})
	if _, err := r.Clusters.Release(t.Context(), now.ID); err != nil {
		t.Fatal(err)
	}
	r.owes(t, paid, r.settle(t, now))
	f.idle(t)
	f.check(t)
}
