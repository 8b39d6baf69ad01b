package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// daemon is a Docker that makes containers on paper only, with GPUs to attach as the test says.
type daemon struct {
	mu      sync.Mutex
	info    system.Info
	created []created
}

type created struct {
	container.Config
	HostConfig container.HostConfig
}

func (d *daemon) change(f func(*system.Info)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.info)
}

func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.Header().Set("Api-Version", "1.41")
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch _, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v"), "/"); {
	case strings.HasSuffix(r.URL.Path, "/_ping"):
	case path == "version":
		answer(map[string]any{"Components": []map[string]any{{"Name": "containerd"}, {"Name": "runc", "Version": "1.3.2"}}})
	case path == "info":
		answer(d.info)
	case strings.HasPrefix(path, "images/"):
		answer(map[string]any{"Id": "sha256:1", "Config": map[string]any{"Cmd": []string{"/job"}}})
	case path == "containers/create":
		var c created
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		d.created = append(d.created, c)
		w.WriteHeader(http.StatusCreated)
		answer(map[string]any{"Id": "c1"})
	case strings.HasSuffix(path, "/start"):
		w.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(path, "/json") && len(d.created) > 0:
		answer(map[string]any{"Id": "c1", "State": map[string]any{"Status": "running", "Pid": 1}})
	default:
		w.WriteHeader(http.StatusNotFound)
		answer(map[string]any{"message": "no such " + path})
	}
}

// paper is an engine on such a daemon.
func paper(t *testing.T, change func(*Config)) (*daemon, *Engine) {
	t.Helper()
	d := &daemon{info: system.Info{ServerVersion: "27.0", Driver: "overlay2", DockerRootDir: t.TempDir()}}
	srv := httptest.NewServer(d)
	t.Cleanup(srv.Close)
	cfg := Config{Docker: "tcp://" + srv.Listener.Addr().String(), Host: id.New[id.Host](), GuestBinary: "/guest",
		Overlay: netip.MustParsePrefix("10.77.0.0/20"), Log: slog.New(slog.DiscardHandler)}
	change(&cfg)
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return d, e
}

func work(t *testing.T, gpus ...string) WorkloadSpec {
	return WorkloadSpec{
		Lease: agentapi.LeaseSpec{
			LeaseRef: agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}, GPUs: gpus, Nodes: 1, CPUs: 1, RAMMB: 64,
			Network: agentapi.Network{Address: "10.77.0.1"},
		},
		Guest: "g", ImageID: "sha256:1", Files: leasefiles.At(t.TempDir()),
		Devices: []string{"/dev/null", "/dev/nvidia-not-made-yet"},
	}
}

// writeCDI writes a specification that names the devices and one mount. Each device has nodes of this machine's.
func writeCDI(t *testing.T, dir, file, kind, mount string, names ...string) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "cdiVersion: 0.5.0\nkind: %s\ndevices:\n", kind)
	for _, n := range names {
		fmt.Fprintf(&b, "  - name: %q\n    containerEdits:\n      deviceNodes:\n", n)
		for _, path := range []string{"nvidia0", "nvidia-caps/nvidia-cap11", "nvidia-caps/nvidia-cap12"} {
			fmt.Fprintf(&b, "        - path: /dev/%s\n          hostPath: /dev/null\n", path)
		}
	}
	fmt.Fprintf(&b, "containerEdits:\n  mounts:\n    - hostPath: %s\n      containerPath: /x\n", mount)
	if err := os.WriteFile(filepath.Join(dir, file), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The way to attach GPUs is chosen again for each workload: an agent that started before there was any way refuses GPUs
// until there is one, and then uses it. It never starts a workload without its GPUs.
func TestAttachIsDecidedForEachWorkload(t *testing.T) {
	t.Parallel()
	d, e := paper(t, func(*Config) {})
	refused := func() {
		t.Helper()
		_, err := e.EnsureWorkload(t.Context(), work(t, "GPU-a"))
		var r Refusal
		if !errors.As(err, &r) || r.Reason != agentapi.ReasonRuntimeFailed || !strings.Contains(r.Detail, "attach") {
			t.Errorf("%v, want a refusal", err)
		}
		if len(d.created) != 0 {
			t.Fatalf("made without its GPUs: %+v", d.created)
		}
	}
	attached := func() created {
		t.Helper()
		if _, err := e.EnsureWorkload(t.Context(), work(t, "GPU-a")); err != nil {
			t.Fatal(err)
		}
		c := d.created[len(d.created)-1]
		if len(c.HostConfig.DeviceRequests) != 1 {
			t.Fatalf("%+v", c.HostConfig.DeviceRequests)
		}
		want := guest.InitArgs(agentapi.LeaseRef{}, guest.Proof{Devices: work(t).Devices}, nil)[4:6]
		if !strings.Contains(strings.Join(c.Entrypoint, " "), strings.Join(want, " ")) {
			t.Errorf("the init does not look for the devices: %q", c.Entrypoint)
		}
		d.created = nil
		return c
	}
	refused()
	dir := t.TempDir()
	d.change(func(i *system.Info) { i.CDISpecDirs = []string{dir} })
	refused()
	writeCDI(t, dir, "management.nvidia.com-gpu.yaml", "management.nvidia.com/gpu", dir, "GPU-a")
	refused()
	writeCDI(t, dir, "nvidia.yaml", cdiKind, dir, "0", "all")
	refused()
	writeCDI(t, dir, "nvidia.yaml", cdiKind, filepath.Join(dir, "libcuda.so.550"), "0", "GPU-a")
	refused()
	writeCDI(t, dir, "nvidia.yaml", cdiKind, dir, "0", "GPU-a", "all")
	if c := attached(); c.HostConfig.DeviceRequests[0].Driver != "cdi" ||
		!slices.Contains(c.Env, "NVIDIA_VISIBLE_DEVICES=void") {
		t.Errorf("%+v", c)
	}
	if err := os.Remove(filepath.Join(dir, "nvidia.yaml")); err != nil {
		t.Fatal(err)
	}
	refused()
	d.change(func(i *system.Info) {
		i.Runtimes = map[string]system.RuntimeWithStatus{"nvidia": {}}
	})
	d.change(func(i *system.Info) { i.CgroupDriver = "systemd" })
	c := attached()
	if n := c.HostConfig.Devices; len(n) != 1 || n[0].PathOnHost != "/dev/null" || n[0].CgroupPermissions != "rw" {
		t.Errorf("a reload of systemd's configuration would take the devices away: %+v", n)
	}
	if caps := c.HostConfig.DeviceRequests[0].Capabilities; len(caps) != 1 ||
		!slices.Equal(caps[0], []string{"gpu", "compute", "utility", "graphics", "video", "compat32"}) {
		t.Errorf("%v: rendering and video coding would not work", caps)
	}
	d.change(func(i *system.Info) { // 28.2 says itself what it found
		i.DiscoveredDevices = []system.DeviceInfo{{Source: "cdi", ID: cdiKind + "=GPU-a"}}
	})
	if c := attached(); c.HostConfig.DeviceRequests[0].Driver != "cdi" {
		t.Errorf("%+v", c.HostConfig.DeviceRequests)
	}
	if f := e.Facts(t.Context()); f.Runc != "1.3.2" {
		t.Errorf("runc %q", f.Runc)
	}
	// Without GPUs there is nothing to attach or to look for.
	if _, err := e.EnsureWorkload(t.Context(), work(t)); err != nil || len(d.created[0].HostConfig.DeviceRequests) != 0 ||
		slices.Contains(d.created[0].Entrypoint, "--devices") {
		t.Errorf("%v %+v", err, d.created)
	}
}

// Simulated GPUs have nothing to attach; a real one that would not be attached is refused, whatever the operator asked.
func TestAttachNone(t *testing.T) {
	t.Parallel()
	d, e := paper(t, func(c *Config) { c.Simulated = true })
	if _, err := e.EnsureWorkload(t.Context(), work(t, "GPU-a")); err != nil || slices.Contains(d.created[0].Entrypoint,
		"--devices") {
		t.Errorf("%v, %+v", err, d.created)
	}
	for _, asked := range []Attach{AttachNone, AttachCDI, AttachNVIDIA} {
		d, e := paper(t, func(c *Config) { c.Attach = asked })
		_, err := e.EnsureWorkload(t.Context(), work(t, "GPU-a"))
		if !errors.As(err, new(Refusal)) || len(d.created) != 0 {
			t.Errorf("--attach %s: %v", asked, err)
		}
	}
	d.change(func(i *system.Info) { i.ServerVersion = "" })
	e.cfg.Simulated = false
	if _, err := e.EnsureWorkload(t.Context(), work(t, "GPU-a")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a daemon that does not say what it has: %v", err)
	}
}

func TestCDIProblems(t *testing.T) {
	t.Parallel()
	gpus := []string{"GPU-a", "GPU-b"}
	for name, c := range map[string]struct {
		cdi     CDI
		nvidia  bool
		mode    Attach
		ok      bool
		code    string
		bad     bool
		problem string
	}{
		"all named": {cdi: CDI{Devices: []string{"0", "GPU-a", "GPU-b"}, Files: []string{"f"}}, mode: AttachCDI, ok: true},
		"a GPU was added": {CDI{Devices: []string{"GPU-a"}, Files: []string{"f"}}, true, AttachNVIDIA, true, "cdi_not_usable",
			false, "1 of the 2"},
		"by index only": {CDI{Devices: []string{"0", "1"}, Files: []string{"f"}}, false, AttachNone, false, "cdi_not_usable",
			true, "2 of the 2"},
		"after an update": {CDI{Devices: gpus, Files: []string{"f"}, Wrong: map[string][]string{"GPU-b": {"f: gone"}}}, false,
			AttachNone, false, "cdi_not_usable", true, "update of the driver"},
		"another kind": {CDI{OtherKinds: []string{"m"}}, false, AttachNone, false, "cdi_not_usable", true,
			"none of the kind"},
		"nothing":            {CDI{}, false, AttachNone, false, "no_gpu_runtime", true, "cannot attach"},
		"the runtime":        {CDI{}, true, AttachNVIDIA, true, "", false, ""},
		"the runtime's hook": {CDI{}, true, AttachNVIDIA, true, "gpus_by_hook", false, "systemd"},
		"CDI needs no hook":  {CDI{Devices: gpus, Files: []string{"f"}}, true, AttachCDI, true, "", false, ""},
	} {
		f := Facts{CDI: c.cdi, NVIDIARuntime: c.nvidia, Systemd: strings.Contains(name, "hook")}
		mode, ok := f.Attach(gpus)
		p := f.AttachProblem(gpus)
		if mode != c.mode || ok != c.ok || (p == nil) != (c.code == "") {
			t.Errorf("%s: %s %t %+v", name, mode, ok, p)
			continue
		}
		if p != nil && (p.Code != c.code || (p.Severity == "bad") != c.bad || !strings.Contains(p.Cause, c.problem) ||
			p.Fix == "") {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// A slice is attached by its CDI name or not at all: NVIDIA's runtime would need device files that are not listed here.
func TestASliceIsAttachedByCDI(t *testing.T) {
	t.Parallel()
	d, e := paper(t, func(*Config) {})
	dir := t.TempDir()
	d.change(func(i *system.Info) {
		i.CDISpecDirs, i.Runtimes = []string{dir}, map[string]system.RuntimeWithStatus{"nvidia": {}}
	})
	_, err := e.EnsureWorkload(t.Context(), work(t, "MIG-a"))
	if r := (Refusal{}); !errors.As(err, &r) || len(d.created) != 0 {
		t.Fatalf("%v, %+v", err, d.created)
	}
	writeCDI(t, dir, "nvidia.yaml", cdiKind, dir, "MIG-a")
	if _, err := e.EnsureWorkload(t.Context(), work(t, "MIG-a")); err != nil {
		t.Fatal(err)
	}
	r := d.created[0].HostConfig.DeviceRequests
	if len(r) != 1 || r[0].Driver != "cdi" || !slices.Equal(r[0].DeviceIDs, []string{"nvidia.com/gpu=MIG-a"}) {
		t.Errorf("%+v", r)
	}
}
