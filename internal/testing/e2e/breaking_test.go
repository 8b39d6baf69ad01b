package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
)

// How to break things, and to hold them at a place where breaking them is interesting.

// node is one rank as it is on the machine.
type node struct {
	t     *testing.T
	p     *platform
	host  string // its id
	name  string // the host's, local-1
	lease id.Lease
}

// node finds where a rank runs.
func (p *platform) node(t *testing.T, c client.Cluster, rank int) node {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.PostgresURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	n := node{t: t, p: p, host: c.Nodes[rank].HostID.String()}
	if err := conn.QueryRow(t.Context(), "SELECT id FROM lease WHERE cluster_id = $1 AND rank = $2", c.ID,
		rank).Scan(&n.lease); err != nil {
		t.Fatal(err)
	}
	for _, h := range p.state.Hosts {
		if h.ID == n.host {
			n.name = h.Name
		}
	}
	return n
}

// pid is the first process of the rank's guest or work container, or its overlay process; 0 when there is none.
func (n node) pid(part string) (pid int) {
	if part == "overlay" {
		for pid := range n.p.processes("overlay " + filepath.Join(n.p.dir, "hosts", n.name, "state", "leases",
			n.lease.String())) {
			return pid
		}
		return 0
	}
	for _, c := range n.p.docker("ps", "--no-trunc", "--quiet", "--filter", "label=muster.lease="+n.lease.String(),
		"--filter", "label=muster.role="+part) {
		pid, _ = strconv.Atoi(strings.Join(n.p.docker("inspect", "--format", "{{.State.Pid}}", c), ""))
	}
	return pid
}

// killContainer kills the first process of the rank's guest or work container, as the kernel would.
func (n node) killContainer(role string) { n.killPart(role) }

// killOverlay kills the process that carries the rank's network.
func (n node) killOverlay() { n.killPart("overlay") }

func (n node) killPart(part string) {
	n.t.Helper()
	eventually(n.t, "there is a "+part+" to kill", func() bool {
		pid := n.pid(part)
		return pid > 0 && syscall.Kill(pid, syscall.SIGKILL) == nil
	})
}

// signalAgent sends a signal to the agent of the rank's host.
func (n node) signalAgent(s syscall.Signal) { n.p.signalAgent(n.t, n.name, s) }

func (p *platform) signalAgent(t *testing.T, host string, s syscall.Signal) {
	t.Helper()
	for pid := range p.processes("muster-agent run --state " + filepath.Join(p.dir, "hosts", host, "state")) {
		kill(t, pid, s)
		return
	}
	t.Fatalf("%s has no agent", host)
}

// freeze stops a host's agent where it is; the function it returns lets it go on. A cluster of which this host is a
// part comes no further than joining meanwhile.
func (p *platform) freeze(t *testing.T, host string) (thaw func()) {
	t.Helper()
	p.signalAgent(t, host, syscall.SIGSTOP)
	return func() { p.signalAgent(t, host, syscall.SIGCONT) }
}

func kill(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("kill -%d %d: %v", s, pid, err)
	}
}

// held are the states of a rank that pulls, or has pulled and waits for another rank on a frozen host: on a busy
// machine, a short pull may go unseen.
var held = []string{"pulling", "starting", "joining"}

// awaitNode waits until some rank is in one of the states and returns its number.
func (r *renter) awaitNode(t *testing.T, c client.Cluster, states ...string) (rank int) {
	t.Helper()
	eventually(t, fmt.Sprintf("a rank of %s is %v", c.ID, states), func() bool {
		now, err := r.Clusters.Get(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now.State.Ended() {
			t.Fatalf("%s %s\n%s", now.State, now.Detail, r.timeline(t, c))
		}
		for _, n := range now.Nodes {
			for _, s := range states {
				if n.State == s {
					rank = n.Rank
					return true
				}
			}
		}
		return false
	})
	return rank
}

// bigImage is the demo's image with so many MB of new data: pulling it takes a while.
func (p *platform) bigImage(t *testing.T, mb int) string {
	t.Helper()
	from, err := name.ParseReference(p.DemoImage, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(from)
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	layer, err := io.ReadAll(noise(seed, mb))
	if err != nil {
		t.Fatal(err)
	}
	// As it is: a layer made of a stream is compressed three times on its way to the registry.
	if img, err = mutate.AppendLayers(img, static.NewLayer(layer, types.OCIUncompressedLayer)); err != nil {
		t.Fatal(err)
	}
	to, err := name.NewTag(fmt.Sprintf("%s/test/big:%x", p.registry(), seed), name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(to, img); err != nil {
		t.Fatal(err)
	}
	return to.Name()
}

// noise is a tar with one file that no compression makes smaller. The same seed gives the same bytes.
func noise(seed uint64, mb int) io.Reader {
	var head, end bytes.Buffer
	w := tar.NewWriter(&head)
	// into memory
	_ = w.WriteHeader(&tar.Header{Name: "noise", Mode: 0o644, Size: int64(mb) << 20, Format: tar.FormatUSTAR})
	end.Write(make([]byte, 1024))
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return io.MultiReader(&head, io.LimitReader(rand.NewChaCha8(key), int64(mb)<<20), &end)
}

// idle checks that nothing of any lease is left: no claim in the database, no container and no overlay on the machine.
func (p *platform) idle(t *testing.T) {
	t.Helper()
	eventually(t, "the platform is idle", func() bool {
		return p.sql(t, "SELECT count(*) FROM gpu_claim WHERE ended_at IS NULL") == 0
	})
	for _, h := range p.state.Hosts {
		for _, c := range p.docker("ps", "--all", "--filter", "label=muster.host="+h.ID, "--format",
			"{{.Names}} {{.Status}}") {
			t.Errorf("left on %s: container %s", h.Name, c)
		}
	}
	for pid, args := range p.processes("muster-agent overlay ") {
		t.Errorf("left: process %d %s", pid, args)
	}
}

// training is a job over two nodes that lasts at least so long.
func (p *platform) training(atLeast time.Duration) client.Spec {
	s := p.spec(2, 1, "train")
	s.Env = map[string]string{"TRAIN_STEPS": strconv.Itoa(int(atLeast / (20 * time.Millisecond))), "TRAIN_STEP_MS": "20"}
	return s
}

// endless is a training over two nodes that goes on until its file exists: a test can take its time meanwhile, however
// slow the machine is.
func (p *platform) endless() client.Spec {
	return untilEnough(p.spec(2, 1, "train"))
}

// untilEnough makes a training or a nap end when enough creates its file. Its steps are slow: clusters run while their
// tests wait for a turn, and must leave the processor to other tests.
func untilEnough(s client.Spec) client.Spec {
	s.Env = map[string]string{
		"TRAIN_STEPS":     "1000000000",
		"TRAIN_STEP_MS":   "250",
		"TRAIN_LOG_EVERY": "4",
		"TRAIN_UNTIL":     enoughFile,
		"NAP_UNTIL":       enoughFile,
	}
	return s
}

const enoughFile = "/enough"

// enough ends an endless training or nap in good order: each rank finds the file and exits with 0.
func (r *renter) enough(t *testing.T, c client.Cluster) {
	t.Helper()
	for rank := range c.Nodes {
		until(t, fmt.Sprintf("rank %d gets the file", rank), func() error {
			err := r.shell(t, c, rank, "echo > "+enoughFile)
			if now, lookErr := r.Clusters.Get(t.Context(), c.ID); err != nil && lookErr == nil && now.State.Ended() {
				return nil // another rank had ended it, or its host is cut off: the test checks how it ended
			}
			return err
		})
	}
}

// shell runs one command on a rank.
func (r *renter) shell(t *testing.T, c client.Cluster, rank int, command string) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := r.Clusters.SSH(ctx, c.ID, rank)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	session, err := conn.NewSession()
	if err != nil {
		return err
	}
	return session.Run(command)
}

// trained waits for a training's end and checks that it is whole: all ranks ended with the same parameters, in the
// first epoch.
func (r *renter) trained(t *testing.T, c client.Cluster) client.Usage {
	t.Helper()
	c = r.await(t, c, client.Released)
	if c.Reason != "completed" || c.Epoch != 1 {
		t.Errorf("%s in epoch %d: %s\n%s", c.Reason, c.Epoch, c.Detail, r.timeline(t, c))
	}
	u := r.settle(t, c)
	results := map[string]bool{}
	for rank := range c.Nodes {
		m := doneLine.FindStringSubmatch(r.logs(t, c, rank))
		if m == nil {
			t.Fatalf("rank %d has no result:\n%s", rank, r.logs(t, c, rank))
		}
		results[m[1]] = true
	}
	if len(results) != 1 {
		t.Errorf("the ranks ended with different results: %v", results)
	}
	return u
}

// napOf reads from when to when a rank of a cluster that naps says it did, in unix milliseconds.
func napOf(log string) (began, ended int64) {
	for _, l := range strings.Split(log, "\n") {
		if word, at, ok := strings.Cut(l, " "); ok && word == "began" {
			began, _ = strconv.ParseInt(at, 10, 64)
		} else if ok && word == "ended" {
			ended, _ = strconv.ParseInt(at, 10, 64)
		}
	}
	return began, ended
}
