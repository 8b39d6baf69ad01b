package agent_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
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
	"github.com/musterhq/muster/agent/machine/gpu/probe"
	"github.com/musterhq/muster/agent/machine/gpucheck/cuda"
	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/machine/hostmem"
	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/storage/sharedfs"
	"github.com/musterhq/muster/agent/storage/snapd"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/cores"
	"github.com/musterhq/muster/agent/workload/image"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// built are the programs of the tests.
var built struct{ guest, job string }

// TestMain is also the overlay process, the probe and the check of GPUs, which are this executable again.
func TestMain(m *testing.M) {
	if library := os.Getenv(probeEnv); library != "" {
		if err := probe.Run(context.Background(), os.Stdin, os.Stdout, library); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "gpucheck" { // in a container
		os.Exit(cuda.Main(os.Args[2:], os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == "overlay" {
		os.Exit(overlay.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "snapd" {
		os.Exit(snapd.Main(os.Args[2:]))
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
	id       id.Host
	key      ed25519.PrivateKey
	dir      string
	engine   *container.Engine
	image    string
	allow    []string // registries beside the image's
	gpus     agent.GPUs
	real     bool // the agent takes the GPUs for real ones; the engine attaches nothing
	cleanIn  time.Duration
	patience time.Duration // with an overlay that is silent
	firewall time.Duration // between looks at it
	stop     func()
	prefetch bool
	cores    cores.Host
	scratch  *scratch.Store
	mount    string // muster-mount; "" = it mounts no buckets
	leaving  func() string
	shared   []*sharedfs.Share
	memory   hostmem.Reader
	log      *slog.Logger
}

func newHost(t *testing.T) *host { return newHostOn(t, "") }

// newHostOn is a host on the Docker daemon at an address; "" = this machine's.
func newHostOn(t *testing.T, docker string) *host {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{
		id:   id.New[id.Host](),
		key:  key,
		dir:  t.TempDir(),
		gpus: gpus{make(chan struct{})}.parts(),
		log:  slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	h.control = newControl(t, h.id.String(), pub)
	h.engine, err = container.New(container.Config{
		Docker:      docker,
		Host:        h.id,
		GuestBinary: built.guest,
		Simulated:   true,
		Overlay:     netip.MustParsePrefix("10.77.0.0/20"),
		Log:         h.log,
	})
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
	images, err := image.New(image.Config{
		Daemon: h.engine,
		Dir:    filepath.Join(h.dir, "images"),
		Prefix: "muster-" + container.Host8(h.id),
		Allow:  append([]string{strings.Split(h.image, "/")[0]}, h.allow...),
		Driver: func() image.Driver { return image.Driver{Version: "550.90.07", CUDA: "12.4"} },
		Free:   func() (int64, error) { return 1 << 40, nil },
		Now:    time.Now,
		Log:    h.log,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	a, err := agent.New(agent.Config{
		Host:            h.id,
		Key:             h.key,
		Version:         "test",
		StateDir:        h.dir,
		BootID:          h.boot,
		BootMS:          hostinfo.BootMS,
		Now:             time.Now,
		Engine:          h.engine,
		Images:          images,
		GPUs:            h.gpus,
		Link:            h.control,
		Simulated:       !h.real,
		Log:             h.log,
		Inventory:       func(context.Context) agentapi.Inventory { return agentapi.Inventory{} },
		Resolvers:       []netip.Addr{netip.MustParseAddr("192.0.2.53")},
		Advertise:       []string{"127.0.0.1"},
		Tick:            100 * time.Millisecond,
		CleanIn:         h.cleanIn,
		OverlayPatience: h.patience,
		FirewallEvery:   h.firewall,
		Prefetch:        h.prefetch,
		Cores:           h.cores,
		Scratch:         h.scratch,
		MountProgram:    h.mount,
		Shared:          h.shared,
		SharedEvery:     200 * time.Millisecond,
		AnyStore:        true,
		Leaving:         h.leaving,
		Memory:          h.memory,
	})
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
	// work first
	slices.SortFunc(list, func(a, b container.Container) int { return strings.Compare(string(b.Role), string(a.Role)) })
	for _, c := range list {
		if err := h.engine.Remove(ctx, c.Ref, c.Role); err != nil {
			h.t.Errorf("clean up: %v", err)
		}
	}
	if err := errors.Join(h.engine.RemoveNetwork(ctx), firewall.Remove(ctx, container.Host8(h.id))); err != nil {
		h.t.Errorf("clean up: %v", err)
	}
	images, err := image.New(image.Config{
		Daemon: h.engine,
		Dir:    filepath.Join(h.dir, "images"),
		Prefix: "muster-" + container.Host8(h.id),
		Free:   func() (int64, error) { return 0, nil },
		Now:    time.Now,
		Log:    h.log,
	})
	if err == nil {
		_, err = images.GC(ctx, nil, 0, 1<<40)
	}
	if err != nil {
		h.t.Errorf("clean up images: %v", err)
	}
}

func pushJob(t *testing.T, ref string) { pushJobAs(t, ref, nil) }

// pushJobAs pushes the job's image with another configuration, and with credentials.
func pushJobAs(t *testing.T, ref string, alter func(*v1.ConfigFile), opts ...remote.Option) {
	t.Helper()
	program, err := os.ReadFile(built.job)
	if err != nil {
		t.Fatal(err)
	}
	pushProgram(t, ref, program, alter, opts...)
}

// pushProgram pushes an image with a program as its /job.
func pushProgram(t *testing.T, ref string, program []byte, alter func(*v1.ConfigFile), opts ...remote.Option) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, dir := range []string{"tmp/"} {
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o1777})
	}
	w.WriteHeader(&tar.Header{Name: "job", Mode: 0o755, Size: int64(len(program))})
	w.Write(program)
	w.Close()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())),
			nil
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Config: v1.Config{Cmd: []string{"/job", "run"}}}
	if alter != nil {
		alter(cfg)
	}
	img, err := mutate.ConfigFile(empty.Image, cfg)
	if err == nil {
		img, err = mutate.AppendLayers(img, layer)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := name.ParseReference(ref)
	if err == nil {
		err = remote.Write(r, img, opts...)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// spec is a node of a cluster of one.
func (h *host) spec(command ...string) agentapi.LeaseSpec {
	return agentapi.LeaseSpec{
		LeaseRef: agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1},
		Cluster:  id.New[id.Cluster]().String(),
		Node:     id.New[id.Node]().String(),
		Nodes:    1,
		Image:    h.image,
		Command:  command,
		Env:      map[string]string{"SECRET": "s3cret-" + h.id.String()},
		GPUs:     []string{"GPU-0"},
		CPUs:     0.5,
		RAMMB:    128,
		DiskGB:   1,
		Egress:   "full",
		GraceS:   10,
		Network:  agentapi.Network{CIDR: "10.77.0.0/20", Address: "10.77.0.1", MTU: 1280, Peers: []agentapi.Peer{}},
	}
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
