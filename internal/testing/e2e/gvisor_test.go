//go:build gvisor

package e2e

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/devstack"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// Whole nodes under the real gVisor: two hosts whose engines have runsc with the flags docs/isolation.md asks for offer
// it, a cluster that asks for it trains over the overlay to its end, a shell reaches a rank of another and finds
// gVisor's kernel there and not the host's, and the bill is as any other's. Simulated GPUs: nothing passes nvproxy
// here.
func TestNodesUnderGVisor(t *testing.T) {
	runsc, err := exec.LookPath("runsc")
	if err != nil {
		t.Fatal("runsc is not here: run make test-gvisor, which installs it")
	}
	w := newWorld(t)
	w.EngineJSON = `{"runtimes": {"runsc": {"path": "` + runsc +
		`", "runtimeArgs": ["--network=host", "--host-uds=open"]}}}`
	lan := w.Home(testnet.Preserving)
	for i, name := range []string{"a", "b"} {
		w.Box(t, name, lan, "192.168.1.1", "1.00", []string{"192.168.1.10/24", "192.168.1.11/24"}[i])
	}
	r := w.renter(t, 20*money.Unit)
	found, err := r.Offers.Search(t.Context(), client.OffersQuery{PageOf: client.PageOf{}, Q: "runtime=runsc", Sort: ""})
	if err != nil || len(found.Items) != 2 || !slices.Contains(found.Items[0].Runtimes, "runsc") {
		t.Fatalf("offers with gVisor: %+v %v", found, err)
	}

	job := w.job(2, 3*time.Second)
	job.Runtime = "runsc"
	c := r.rent(t, job)
	r.owes(t, r.trained(t, c))

	outside := &platform{Info: devstack.Info{DemoImage: w.Images + "/muster/demo:latest"}}
	sh := w.spec(1, 1, "sleep", "600")
	sh.Image, sh.Runtime = strings.Replace(outside.shellImage(t), w.Images, w.registry(), 1), "runsc"
	c = r.run(t, sh)
	conn, err := r.Clusters.SSH(t.Context(), c.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	session, err := conn.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := session.Output("cat /proc/version; echo rank $NODE_RANK")
	own, herr := os.ReadFile("/proc/version")
	if err != nil || herr != nil || strings.HasPrefix(string(out), string(own)) ||
		!strings.HasPrefix(string(out), "Linux version 4.4.0") || !strings.HasSuffix(string(out), "rank 0\n") {
		t.Errorf("the kernel a shell sees: %q %v, the machine's: %q %v", out, err, own, herr)
	}
	t.Logf("%s", out)
	if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	r.settle(t, c)
	w.idle(t)
	w.check(t)
}
