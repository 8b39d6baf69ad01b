package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/agent/workload/guestenv"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/devstack/demoimage"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "overlay" { // as the agent starts itself
		os.Exit(overlay.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// The whole of a node without the agent: real containers, the real binary in them, a real overlay between, a real
// job on it. The containers have no network but the overlay.
func TestTwoNodesTrain(t *testing.T) {
	t.Parallel()
	image, binary := build(t)
	nodes := []*node{newNode(t, 0, image, binary), newNode(t, 1, image, binary)}
	for i, n := range nodes {
		n.spec.Network.Peers = []agentapi.Peer{nodes[1-i].peer()}
		if err := n.overlay.SetPeers(t.Context(), n.spec.Network.Peers); err != nil {
			t.Fatal(err)
		}
	}
	var g errgroup.Group
	for _, n := range nodes {
		g.Go(func() error {
			p, err := n.client.Preflight(t.Context(), guest.PreflightOf(n.spec))
			if err == nil && (!p.OK || p.BusbwGbps <= 0 || p.RTTMicros[1-n.spec.Rank] <= 0) {
				err = fmt.Errorf("preflight: %+v", p)
			}
			t.Logf("rank %d: %.2f Gbit/s, round trips %v µs", n.spec.Rank, p.BusbwGbps, p.RTTMicros)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		n.workload(t, "--user", []string{"0", "65534"}[n.spec.Rank])
		if w := n.next(t, guest.StateNone); w.State != guest.StateAtBarrier {
			t.Fatalf("rank %d: %+v", n.spec.Rank, w)
		}
		if out := docker(t, "logs", n.work); out != "" {
			t.Fatalf("rank %d ran before its release: %s", n.spec.Rank, out)
		}
	}
	for _, n := range nodes {
		start := time.Now()
		if err := n.files.OpenBarrier(n.spec.LeaseRef); err != nil {
			t.Fatal(err)
		}
		if w := n.next(t, guest.StateAtBarrier); w.State != guest.StateStarted {
			t.Fatalf("rank %d: %+v", n.spec.Rank, w)
		}
		t.Logf("rank %d: %v from release to the command running", n.spec.Rank, time.Since(start))
	}
	ends := map[string]bool{}
	for _, n := range nodes {
		code := strings.TrimSpace(docker(t, "wait", n.work))
		log := docker(t, "logs", n.work)
		end := regexp.MustCompile(`done steps=50 (loss=\S+ params=\S+)`).FindStringSubmatch(log)
		if code != "0" || end == nil {
			t.Fatalf("rank %d ended with %s:\n%s", n.spec.Rank, code, log)
		}
		ends[end[1]] = true
		if root := n.spec.Rank == 0; strings.Contains(docker(t, "diff", n.work), "A /job/hostfile") != root {
			t.Errorf("rank %d: the host file is linked for root only", n.spec.Rank)
		}
	}
	if len(ends) != 1 {
		t.Errorf("the ranks disagree: %v", ends)
	}
}

// A command that is not in the image ends before the barrier with its own code and reason.
func TestCommandNotFoundInTheImage(t *testing.T) {
	t.Parallel()
	image, binary := build(t)
	n := newNode(t, 0, image, binary)
	n.spec.Command = []string{"python", "train.py"}
	n.workload(t)
	if w := n.next(t, guest.StateNone); w.State != guest.StateRefused || w.Reason != agentapi.ReasonCommandNotFound ||
		!strings.Contains(w.Detail, "python") {
		t.Errorf("%+v", w)
	}
	if code := strings.TrimSpace(docker(t, "wait", n.work)); code != "127" {
		t.Errorf("code %s", code)
	}
}

// build makes the injected binary and loads the demo's image into the engine.
func build(t *testing.T) (image, binary string) {
	t.Helper()
	dir := t.TempDir()
	for _, p := range []string{"muster-guest", "muster-demo-job"} {
		cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", filepath.Join(dir, p), "../../../../cmd/"+p)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", p, err, out)
		}
	}
	job, err := os.ReadFile(filepath.Join(dir, "muster-demo-job"))
	if err != nil {
		t.Fatal(err)
	}
	img, err := demoimage.Build(job)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("muster-test/guest:" + uuid.NewString())
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(filepath.Join(dir, "image.tar"), tag, img); err != nil {
		t.Fatal(err)
	}
	docker(t, "load", "-q", "-i", filepath.Join(dir, "image.tar"))
	t.Cleanup(func() { docker(t, "rmi", tag.String()) })
	return tag.String(), filepath.Join(dir, "muster-guest")
}

type node struct {
	spec    agentapi.LeaseSpec
	files   leasefiles.Layout
	client  *guest.Client
	overlay *overlay.Handle

	image, binary, guest, work string
}

// newNode starts a guest and its overlay.
func newNode(t *testing.T, rank int, image, binary string) *node {
	t.Helper()
	n := &node{image: image, binary: binary, files: leasefiles.At(t.TempDir()), guest: "muster-test-" + uuid.NewString()}
	n.work = n.guest + "-work"
	n.spec = agentapi.LeaseSpec{
		LeaseRef: agentapi.LeaseRef{Lease: n.guest, Epoch: 1}, Rank: rank, Nodes: 2,
		Command: []string{"muster-demo-job", "train"}, Env: map[string]string{"TRAIN_STEPS": "50"},
		Network: agentapi.Network{CIDR: "10.77.0.0/20", Address: fmt.Sprintf("10.77.0.%d", rank+1),
			Peers: []agentapi.Peer{{Rank: 1 - rank, Address: fmt.Sprintf("10.77.0.%d", 2-rank)}}},
	}
	if err := n.files.Write(n.spec, []netip.Addr{netip.MustParseAddr("9.9.9.9")}); err != nil {
		t.Fatal(err)
	}
	n.create(t, n.guest, []string{"--network", "none", "--memory", "64m", "--read-only", "-v", n.files.Guest + ":" +
		guest.HoldDir,
		"-v", n.files.Node + ":" + guest.NodeDir}, guest.HoldArgs(n.spec.LeaseRef))
	n.client = guest.Dial(n.files.HoldSocket)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		if _, err := n.client.Next(ctx, "none"); err == nil {
			break
		} else if ctx.Err() != nil {
			t.Fatalf("the guest does not come up: %v\n%s", err, docker(t, "logs", n.guest))
		}
	}
	pid := strings.TrimSpace(docker(t, "inspect", "-f", "{{.State.Pid}}", n.guest))
	h, err := overlay.Ensure(t.Context(), overlay.Config{
		Dir: n.files.Dir, Ref: n.spec.LeaseRef, NetNS: "/proc/" + pid + "/ns/net",
		Address: n.spec.Network.Address, CIDR: n.spec.Network.CIDR, Advertise: []string{"127.0.0.1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { overlay.Stop(context.Background(), n.files.Dir) })
	n.overlay = h
	return n
}

func (n *node) peer() agentapi.Peer {
	return agentapi.Peer{
		Rank:      n.spec.Rank,
		Address:   n.spec.Network.Address,
		Key:       n.overlay.PublicKey(),
		Endpoints: n.overlay.Endpoints(),
	}
}

// workload starts the renter's container up to its barrier.
func (n *node) workload(t *testing.T, more ...string) {
	t.Helper()
	env, err := guestenv.Build(n.spec, "void", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	opts := append([]string{"--network", "container:" + n.guest, "-v", n.files.Node + ":" + guest.NodeDir + ":ro"},
		more...)
	for _, kv := range env {
		opts = append(opts, "-e", kv)
	}
	n.create(t, n.work, opts, guest.InitArgs(n.spec.LeaseRef, guest.Proof{}, n.spec.Command))
}

func (n *node) create(t *testing.T, name string, opts, command []string) {
	t.Helper()
	args := append([]string{"run", "-d", "--name", name, "--label", "muster.test=guest", "--cap-drop", "ALL",
		"--security-opt", "no-new-privileges",
		"-v", n.binary + ":" + guest.Binary + ":ro", "--entrypoint", command[0]}, opts...)
	docker(t, append(append(args, n.image), command[1:]...)...)
	t.Cleanup(func() { docker(t, "rm", "-f", "-v", name) })
}

func (n *node) next(t *testing.T, after guest.State) guest.Workload {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	w, err := n.client.Next(ctx, after)
	if err != nil {
		t.Fatalf("%v\n%s", err, docker(t, "logs", n.work))
	}
	return w
}

// docker runs the client and returns all it wrote.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command("docker", args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("docker %s: %v\n%s", args[0], err, out.String())
	}
	return out.String()
}
