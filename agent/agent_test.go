package agent_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/musterhq/muster/agent"
	"github.com/musterhq/muster/agent/container"
	"github.com/musterhq/muster/agent/firewall"
	"github.com/musterhq/muster/agent/hostinfo"
	"github.com/musterhq/muster/agent/image"
	"github.com/musterhq/muster/agent/overlay"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// built are the programs of the tests.
var built struct{ guest, job string }

// TestMain is also the overlay process, which is this executable again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "overlay" {
		os.Exit(overlay.Main(os.Args[2:]))
	}
	dir, err := os.MkdirTemp("", "muster-agent-test-")
	if err != nil {
		log.Fatal(err)
	}
	built.guest, built.job = filepath.Join(dir, "guest"), filepath.Join(dir, "job")
	for out, pkg := range map[string]string{built.guest: "../cmd/muster-guest", built.job: "./testdata/job"} {
		cmd := exec.Command("go", "build", "-o", out, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if b, err := cmd.CombinedOutput(); err != nil {
			log.Fatalf("build %s: %v\n%s", pkg, err, b)
		}
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// host is a host with an agent that can be stopped and started again.
type host struct {
	*control
	id     id.Host
	key    ed25519.PrivateKey
	dir    string
	engine *container.Engine
	image  string
	stop   func()
	log    *slog.Logger
}

func newHost(t *testing.T) *host {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{id: id.New[id.Host](), key: key, dir: t.TempDir(), log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))}
	h.control = newControl(t, h.id.String(), pub)
	h.engine, err = container.New(container.Config{Host: h.id, GuestBinary: built.guest, Attach: container.AttachNone,
		Overlay: netip.MustParsePrefix("10.77.0.0/20"), Log: h.log})
	if err != nil {
		t.Fatal(err)
	}
	reg := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	h.image = reg.Listener.Addr().String() + "/test/job:1"
	pushJob(t, h.image)
	t.Cleanup(func() {
		if h.stop != nil {
			h.stop()
		}
		h.clean()
		reg.Close()
		h.engine.Close()
	})
	h.start()
	return h
}

// start runs an agent on the host's state; stop, like a kill, ends it wherever it is.
func (h *host) start() {
	h.t.Helper()
	images, err := image.New(image.Config{Daemon: h.engine, Dir: filepath.Join(h.dir, "images"), Prefix: "muster-" + container.Host8(h.id),
		Allow: []string{strings.Split(h.image, "/")[0]}, Free: func() (int64, error) { return 1 << 40, nil }, Now: time.Now, Log: h.log})
	if err != nil {
		h.t.Fatal(err)
	}
	boot, err := hostinfo.BootID()
	if err != nil {
		h.t.Fatal(err)
	}
	a, err := agent.New(agent.Config{Host: h.id, Key: h.key, Version: "test", StateDir: h.dir, BootID: boot, BootMS: hostinfo.BootMS, Now: time.Now,
		Engine: h.engine, Images: images, GPUs: gpus{make(chan struct{})}, Link: h.control, Attach: container.AttachNone, Log: h.log,
		Inventory: func(context.Context) agentapi.Inventory { return agentapi.Inventory{} }, Resolvers: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
		Advertise: []string{"127.0.0.1"}, Tick: 100 * time.Millisecond})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.Run(ctx); err != nil {
			h.t.Errorf("agent: %v", err)
		}
	})
	wg.Go(func() {
		if err := images.Serve(ctx); err != nil {
			h.t.Errorf("image proxy: %v", err)
		}
	})
	h.set(func() { h.agent = a })
	h.stop = func() { cancel(); wg.Wait(); h.stop = nil }
}

// clean removes whatever the host's agent made.
func (h *host) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := h.engine.List(ctx)
	if err != nil {
		h.t.Errorf("clean up: %v", err)
	}
	folders, _ := filepath.Glob(filepath.Join(h.dir, "leases", "*"))
	for _, f := range folders {
		if err := overlay.Stop(ctx, f); err != nil {
			h.t.Errorf("clean up: %v", err)
		}
	}
	slices.SortFunc(list, func(a, b container.Container) int { return strings.Compare(string(b.Role), string(a.Role)) }) // work first
	for _, c := range list {
		if err := h.engine.Remove(ctx, c.Ref, c.Role); err != nil {
			h.t.Errorf("clean up: %v", err)
		}
	}
	if err := errors.Join(h.engine.RemoveNetwork(ctx), firewall.Remove(ctx, container.Host8(h.id))); err != nil {
		h.t.Errorf("clean up: %v", err)
	}
	images, err := image.New(image.Config{Daemon: h.engine, Dir: filepath.Join(h.dir, "images"), Prefix: "muster-" + container.Host8(h.id),
		Free: func() (int64, error) { return 0, nil }, Now: time.Now, Log: h.log})
	if err == nil {
		_, err = images.GC(ctx, nil, 0, 1<<40)
	}
	if err != nil {
		h.t.Errorf("clean up images: %v", err)
	}
}

func pushJob(t *testing.T, ref string) {
	t.Helper()
	program, err := os.ReadFile(built.job)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range []string{"tmp/"} {
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o1777})
	}
	w.WriteHeader(&tar.Header{Name: "job", Mode: 0o755, Size: int64(len(program))})
	w.Write(program)
	w.Close()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Config: v1.Config{Entrypoint: []string{"/job"}, Cmd: []string{"run"}}})
	if err == nil {
		img, err = mutate.AppendLayers(img, layer)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := name.ParseReference(ref)
	if err == nil {
		err = remote.Write(r, img)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// spec is a node of a cluster of one.
func (h *host) spec(command ...string) agentapi.LeaseSpec {
	return agentapi.LeaseSpec{LeaseRef: agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}, Cluster: id.New[id.Cluster]().String(),
		Node: id.New[id.Node]().String(), Nodes: 1, Image: h.image, Command: command, Env: map[string]string{"SECRET": "s3cret-" + h.id.String()},
		GPUs: []string{"GPU-0"}, CPUs: 0.5, RAMMB: 128, DiskGB: 1, Egress: "full", GraceS: 10,
		Network: agentapi.Network{CIDR: "10.77.0.0/20", Address: "10.77.0.1", MTU: 1280, Peers: []agentapi.Peer{}}}
}

// launch brings a lease to running.
func (h *host) launch(spec agentapi.LeaseSpec) agentapi.LeaseSpec {
	h.t.Helper()
	h.want(spec)
	h.await(spec.LeaseRef, "ready", ready)
	spec.Go = true
	h.want(spec)
	return spec
}

func (h *host) kept(ref agentapi.LeaseRef) string {
	h.t.Helper()
	b, err := os.ReadFile(filepath.Join(h.dir, "leases", ref.Lease+"-e1", "log.jsonl"))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b)
}

func (h *host) containers() []container.Container {
	h.t.Helper()
	list, err := h.engine.List(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

func TestALeaseFromPullToGone(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.spec("/job", "exit", "7")
	h.want(spec)
	st := h.await(spec.LeaseRef, "ready", ready)
	if st.WGKey == "" || len(st.Endpoints) == 0 || !strings.HasPrefix(st.ImageDigest, "sha256:") || st.Started {
		t.Errorf("ready: %s", said(st))
	}
	spec.Go = true
	h.want(spec)
	st = h.await(spec.LeaseRef, "exited", func(st agentapi.LeaseStatus) bool { return st.ExitCode != nil })
	if *st.ExitCode != 7 || st.State != agentapi.NodeStopped || st.Reason != agentapi.ReasonExited || !st.Started {
		t.Errorf("exited: %s", said(st))
	}
	st = h.await(spec.LeaseRef, "gone", gone)
	if !st.LogKept || *st.ExitCode != 7 {
		t.Errorf("gone: %s", said(st))
	}
	if list := h.containers(); len(list) != 0 {
		t.Errorf("left behind: %+v", list)
	}
	if text := h.kept(spec.LeaseRef); !strings.Contains(text, "hello from rank 0 1 s3cret-") || !strings.Contains(text, `"e":true,"l":"leaving with 7"`) {
		t.Errorf("log: %s", text)
	}
	// The server wants it still, as after a lost answer: it does not run again.
	h.want(spec)
	h.await(spec.LeaseRef, "still gone", gone)
	h.set(func() { h.stored = []agentapi.LeaseRef{spec.LeaseRef} })
	h.want()
	h.awaitReport("nothing left", func(s agentapi.Sync) bool { return len(s.Leases) == 0 && s.Full })
	if left, _ := filepath.Glob(filepath.Join(h.dir, "leases", "*")); len(left) != 0 {
		t.Errorf("folders left: %v", left)
	}
	h.want(spec)
	h.await(spec.LeaseRef, "refused by its tombstone", func(st agentapi.LeaseStatus) bool { return st.Gone && *st.ExitCode == 7 })
	h.set(func() {
		segs := h.segs[spec.LeaseRef]
		if len(segs) == 0 || !segs[len(segs)-1].Final {
			t.Errorf("segments: %+v", segs)
		}
	})
	h.noSecrets()
}

// noSecrets checks that the renter's environment is nowhere on the host's disk but in his own log.
func (h *host) noSecrets() {
	h.t.Helper()
	err := filepath.WalkDir(h.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == "log.jsonl" {
			return err
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte("s3cret-")) {
			h.t.Errorf("the renter's environment is in %s", path)
		}
		return nil
	})
	if err != nil {
		h.t.Error(err)
	}
}

func TestStopIsInOrderAndKeepsTheLog(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.launch(h.spec())
	h.await(spec.LeaseRef, "running", running)
	h.want()
	st := h.await(spec.LeaseRef, "gone", gone)
	if st.State != agentapi.NodeStopped || st.Reason != "" || st.ExitCode != nil {
		t.Errorf("%s", said(st))
	}
	if text := h.kept(spec.LeaseRef); !strings.Contains(text, "told to end") {
		t.Errorf("log: %s", text)
	}
	h.set(func() {
		if seen := h.states[spec.LeaseRef]; !slices.Contains(seen, agentapi.NodeStopping) {
			t.Errorf("states: %v", seen)
		}
	})
}

func TestReasonsOfFailure(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	absent, command := h.spec(), h.spec("/nothing")
	absent.Image = strings.Replace(h.image, "job:1", "none:1", 1)
	h.want(absent, command)
	for ref, reason := range map[agentapi.LeaseRef]string{absent.LeaseRef: agentapi.ReasonImageNotFound, command.LeaseRef: agentapi.ReasonCommandNotFound} {
		st := h.await(ref, "gone", gone)
		if st.State != agentapi.NodeFailed || st.Reason != reason || st.Started {
			t.Errorf("want %s: %s", reason, said(st))
		}
	}
}

func TestAWorkloadIsShutIn(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.launch(h.spec("/job", "see", strings.Split(h.image, "/")[0]))
	h.await(spec.LeaseRef, "gone", gone)
	text := h.kept(spec.LeaseRef)
	for _, want := range []string{"dial true", "hosts read-only true", "no raw socket true", "no vsock true", "no mount true", "hostname node-0", "knows node-0 true", "devices void"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in %s", want, text)
		}
	}
}

func TestWithoutAServerALeaseRunsToItsEnd(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.launch(h.spec())
	h.await(spec.LeaseRef, "running", running)
	until := 1_000_000_000 + hostinfo.BootMS() + 3000
	h.set(func() { h.until[spec.LeaseRef] = until })
	h.agent.Wake(agentapi.Wake{Revision: 1 << 40})
	poll(t, "the extension on the disk", func() bool {
		b, err := os.ReadFile(filepath.Join(h.dir, "leases", spec.Lease+"-e1", "lease.json"))
		return err == nil && bytes.Contains(b, []byte(fmt.Sprintf(`"run_until_ms":%d`, until)))
	})
	h.set(func() { h.down = true })
	h.stop()
	h.start() // without a server, from what the disk knows
	ended := func() bool {
		c, err := h.engine.Inspect(t.Context(), spec.LeaseRef, container.Work)
		return err == nil && c.State != container.Running
	}
	if ended() {
		t.Fatal("ended before its time")
	}
	poll(t, "the workload's end", ended)
	if late := 1_000_000_000 + hostinfo.BootMS() - until; late < 0 || late > 8000 {
		t.Errorf("ended %d ms after run_until", late)
	}
	h.set(func() { h.down = false })
	st := h.await(spec.LeaseRef, "gone", gone)
	if st.Reason != agentapi.ReasonRunUntil {
		t.Errorf("%s", said(st))
	}
}

// poll waits for a condition that nothing signals.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(60 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s did not come", what)
		}
	}
}

func TestGuestDeathFailsTheNode(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.launch(h.spec())
	h.await(spec.LeaseRef, "running", running)
	if err := h.engine.Stop(t.Context(), spec.LeaseRef, container.Guest, 0); err != nil {
		t.Fatal(err)
	}
	st := h.await(spec.LeaseRef, "gone", gone)
	if st.State != agentapi.NodeFailed || st.Reason != agentapi.ReasonGuestDied {
		t.Errorf("%s", said(st))
	}
}

func TestANewEpochReplacesTheOld(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	old := h.launch(h.spec())
	h.await(old.LeaseRef, "running", running)
	next := old
	next.Epoch, next.Go = 2, false
	h.want(next)
	st := h.await(old.LeaseRef, "gone", gone)
	if st.Reason != agentapi.ReasonSuperseded {
		t.Errorf("%s", said(st))
	}
	h.await(next.LeaseRef, "ready", ready)
	for _, c := range h.containers() {
		if c.Ref != next.LeaseRef {
			t.Errorf("the old epoch still has %+v", c)
		}
	}
	h.set(func() { // a server that is behind wants the old epoch again
		h.desired.Revision = 1
		h.desired.Leases = []agentapi.LeaseSpec{old}
	})
	h.agent.Wake(agentapi.Wake{Revision: 1 << 40})
	h.awaitReport("the new epoch alone alive", func(s agentapi.Sync) bool {
		return slices.ContainsFunc(s.Leases, func(l agentapi.LeaseStatus) bool { return l.LeaseRef == next.LeaseRef && ready(l) })
	})
}

// TestARestartedAgentAdopts kills the agent as soon as it has reported each state, and starts another.
func TestARestartedAgentAdopts(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	spec := h.spec()
	h.want(spec)
	for _, state := range []agentapi.NodeState{agentapi.NodePulling, agentapi.NodeStarting, agentapi.NodeJoining, agentapi.NodeReady} {
		h.await(spec.LeaseRef, "at "+string(state), func(st agentapi.LeaseStatus) bool { return stage(st.State) >= stage(state) })
		h.stop()
		h.start()
	}
	h.await(spec.LeaseRef, "ready", ready)
	before := h.containers()
	spec.Go = true
	h.want(spec)
	h.await(spec.LeaseRef, "running", running)
	h.stop()
	h.start()
	h.await(spec.LeaseRef, "running", running)
	if after := h.containers(); len(after) != 2 || !slices.ContainsFunc(before, func(c container.Container) bool { return c.ID == after[0].ID }) {
		t.Errorf("not adopted: %+v, then %+v", before, after)
	}
	h.want()
	h.await(spec.LeaseRef, "stopping", func(st agentapi.LeaseStatus) bool { return stage(st.State) >= stage(agentapi.NodeStopping) })
	h.stop()
	h.start()
	h.await(spec.LeaseRef, "gone", gone)
	h.awaitReport("usage to its end", func(agentapi.Sync) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		segs := h.segs[spec.LeaseRef]
		return len(segs) > 0 && segs[len(segs)-1].Final
	})
}

func stage(s agentapi.NodeState) int {
	return slices.Index([]agentapi.NodeState{agentapi.NodePulling, agentapi.NodeStarting, agentapi.NodeJoining, agentapi.NodeReady,
		agentapi.NodeStopping, agentapi.NodeStopped, agentapi.NodeFailed}, s)
}
