//go:build torch

package e2e

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// launchFiles is a layer with docs/launch in the image's working folder: what the documentation shows is what is run.
func launchFiles(t *testing.T) v1.Layer {
	t.Helper()
	files, err := filepath.Glob("../../../docs/launch/*.[ps][yh]")
	if err != nil || len(files) == 0 {
		t.Fatalf("docs/launch has no examples: %v", err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WriteHeader(&tar.Header{
			Name: "root/" + filepath.Base(f),
			Mode: 0o644,
			Size: int64(len(text)),
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())),
			nil
	},
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// torchImage is the image of a root file system and docs/launch.
func (p *platform) torchImage(t *testing.T, tarFile string) string {
	t.Helper()
	return p.debianImage(t, "torch", tarFile, launchFiles(t))
}

// ddpResult is the last line of docs/launch/ddp.py.
var ddpResult = regexp.MustCompile(`rank (\d) of (\d) done loss (\S+) to (\S+) params sha256:([0-9a-f]{64})`)

// The examples of docs/launch run on a rented cluster over two hosts: PyTorch's DistributedDataParallel with the plain
// environment and under torchrun, gloo over the overlay, and Open MPI's mpirun over the injected rsh. `make test-torch`
// makes the image, which is too big for every run.
func TestLaunchers(t *testing.T) {
	tarFile := os.Getenv("MUSTER_TEST_TORCH")
	if tarFile == "" {
		t.Fatal("MUSTER_TEST_TORCH names no image: run make test-torch, which makes one")
	}
	p := own(t)
	image := p.torchImage(t, tarFile)
	for _, tc := range []struct {
		name    string
		gpus    int
		command string
		fails   string // in the detail
		check   func(t *testing.T, logs string)
	}{
		{name: "plain environment", gpus: 1, command: "python3 ddp.py", check: trained(2)},
		// The options are for Debian 12's PyTorch alone, as docs/launch says.
		{name: "torchrun", gpus: 2, command: "sh torchrun.sh --redirects 9:1 --tee 9:1 ddp.py", check: trained(4)},
		{name: "mpirun", gpus: 2, command: "sh mpirun.sh python3 allreduce.py", check: summed},
		{name: "mpirun of what fails", gpus: 2, command: "sh mpirun.sh sh -c 'exit 3'", fails: "exit code 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := p.spec(2, tc.gpus, "sh", "-c", "exec "+tc.command)
			s.Image, s.DiskGB, s.Env = image, 20, map[string]string{"OMP_NUM_THREADS": "1"}
			r := p.renter(t, 20*money.Unit)
			c := r.rent(t, s)
			state, reason := client.Released, "completed"
			if tc.fails != "" {
				state, reason = client.Failed, "workload_failed"
			}
			done, err := r.Clusters.Wait(t.Context(), c.ID, state, nil)
			if err != nil || done.Reason != reason || !strings.Contains(done.Detail, tc.fails) {
				t.Fatalf("%s %s: %v\n%s\n%s\n%s", done.State, done.Detail, err, r.timeline(t, c), r.logs(t, c, 0), r.logs(t, c, 1))
			}
			u := r.settle(t, c)
			if tc.check != nil {
				tc.check(t, r.logs(t, c, 0)+"\n"+r.logs(t, c, 1))
			}
			t.Logf("%.1f s from rent to running (the first time with the pull of the image), %s s billed, %s paid",
				done.RunningAt.Sub(done.CreatedAt).Seconds(), u.BillableSeconds, u.Cost)
			r.owes(t, u)
		})
	}
	p.idle(t)
	p.check(t)
}

// summed checks that four processes, two on each rank, have ended with the sum of docs/launch/allreduce.py.
func summed(t *testing.T, logs string) {
	t.Helper()
	for i := range 4 {
		line := fmt.Sprintf("process %d of 4 on node-%d: the sum is 6", i, i/2)
		if !strings.Contains(logs, line) {
			t.Errorf("not said: %s\n%s", line, logs)
			continue
		}
		t.Log(line)
	}
}

// trained checks that so many processes have ended with the same parameters.
func trained(processes int) func(t *testing.T, logs string) {
	return func(t *testing.T, logs string) {
		t.Helper()
		results, ranks := map[string]bool{}, map[string]bool{}
		for _, m := range ddpResult.FindAllStringSubmatch(logs, -1) {
			if m[2] == strconv.Itoa(processes) {
				ranks[m[1]] = true
				results[strings.Join(m[3:], " ")] = true
				t.Log(m[0])
			}
		}
		if len(ranks) != processes || len(results) != 1 {
			t.Errorf("%d of %d processes reported their result, %d results:\n%s", len(ranks), processes, len(results), logs)
		}
	}
}
