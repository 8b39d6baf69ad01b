//go:build torch

package e2e

import (
	_ "embed"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

//go:embed testdata/ddp.py
var ddp string

// torchImage makes an image of one layer out of a root file system and puts it into the platform's registry.
func (p *platform) torchImage(t *testing.T, tarFile string) string {
	t.Helper()
	layer, err := tarball.LayerFromFile(tarFile, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(1))
	if err != nil {
		t.Fatal(err)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, layer); err != nil {
		t.Fatal(err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", runtime.GOARCH
	cfg.Config = v1.Config{Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}, WorkingDir: "/root"}
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		t.Fatal(err)
	}
	to, err := name.NewTag(p.registry()+"/test/torch:1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(to, img); err != nil {
		t.Fatal(err)
	}
	return to.Name()
}

// ddpResult is the last line of testdata/ddp.py.
var ddpResult = regexp.MustCompile(`rank (\d) of 2 done loss (\S+) to (\S+) params sha256:([0-9a-f]{64})`)

// PyTorch's DistributedDataParallel trains on a rented cluster over two hosts with nothing but the environment every
// node has: gloo over the overlay. `make test-torch` makes the image, which is too big for every run.
func TestTorchTrainsOverTwoNodes(t *testing.T) {
	tarFile := os.Getenv("MUSTER_TEST_TORCH")
	if tarFile == "" {
		t.Fatal("MUSTER_TEST_TORCH names no image: run make test-torch, which makes one")
	}
	p := own(t)
	began := time.Now()
	s := p.spec(2, 1, "python3", "-c", ddp)
	s.Image, s.DiskGB, s.Env = p.torchImage(t, tarFile), 20, map[string]string{"OMP_NUM_THREADS": "1"}
	t.Logf("the image was made and put into the registry in %s", time.Since(began).Round(time.Second))
	r := p.renter(t, 20*money.Unit)
	c := r.rent(t, s)
	done, err := r.WaitCluster(t.Context(), c.ID, client.Released, nil)
	if err != nil || done.Reason != "completed" {
		t.Fatalf("%s %s: %v\n%s\n%s\n%s", done.State, done.Detail, err, r.timeline(t, c), r.logs(t, c, 0), r.logs(t, c, 1))
	}
	u := r.settle(t, c)
	results := map[string]int{}
	for rank := range 2 {
		log := r.logs(t, c, rank)
		m := ddpResult.FindStringSubmatch(log)
		if m == nil || m[1] != string(rune('0'+rank)) {
			t.Fatalf("rank %d has no result:\n%s", rank, log)
		}
		results[strings.Join(m[2:], " ")]++
		t.Log(m[0])
	}
	if len(results) != 1 {
		t.Errorf("the ranks ended with different parameters: %v", results)
	}
	t.Logf("%.1f s from rent to running (the pull of the image included), %s s billed, %s paid",
		done.RunningAt.Sub(done.CreatedAt).Seconds(), u.BillableSeconds, u.Cost)
	r.owes(t, u)
	p.idle(t)
	p.check(t)
}
