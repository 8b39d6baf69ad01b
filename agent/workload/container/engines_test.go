//go:build docker

package container

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
)

// These tests ask real engines of several versions for what the other tests' engine, Debian's, does not have.
// scripts/with-engine starts them (make test-docker).

// The facts are those of the engine that was started: its version, and the folder that its images are in.
func TestEngineFacts(t *testing.T) {
	e, _, _ := setUp(t)
	f := e.Facts(t.Context())
	if want := os.Getenv("MUSTER_TEST_ENGINE"); !strings.HasPrefix(f.Version, want+".") || f.Runc == "" {
		t.Errorf("Docker %q, runc %q, want Docker %s", f.Version, f.Runc, want)
	}
	want := os.Getenv("MUSTER_TEST_ENGINE_ROOT")
	if os.Getenv("MUSTER_TEST_ENGINE") == "26" && f.StorageDriver == "overlayfs" {
		want = "/var/lib/containerd" // this Docker does not report which containerd it uses
	}
	if f.RootDir != want {
		t.Errorf("the data is in %s, want %s", f.RootDir, want)
	}
	for _, p := range f.Problems {
		if p.Severity == "bad" {
			t.Errorf("%+v", p)
		}
	}
}

// attach starts a workload with one GPU whose device in the container is /dev/nvidia0, and returns what its init found
// before the barrier. The image does not have the command, so an init that found the device goes on to that.
func attach(t *testing.T) (guest.Workload, string) {
	t.Helper()
	e, spec, files := setUp(t)
	e.cfg.Simulated = false
	spec.GPUs, spec.Command = []string{gpuA}, []string{"/no/such/command"}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	g, err := e.EnsureGuest(ctx, spec, files)
	if err != nil {
		t.Fatal(err)
	}
	image, err := e.ensureBaseImage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w, err := e.EnsureWorkload(ctx, WorkloadSpec{Lease: spec, Guest: g.ID, ImageID: image, Files: files,
		Devices: []string{"/dev/nvidia0"}})
	if err != nil {
		t.Fatal(err)
	}
	for ctx.Err() == nil {
		if found, err := guest.Dial(files.HoldSocket).Next(ctx, guest.StateNone); err == nil &&
			found.State != guest.StateNone {
			return found, w.ID
		}
	}
	t.Fatal("the init never reported")
	return guest.Workload{}, ""
}

// specify writes a CDI specification that makes /dev/zero the GPU's device, with a mount of a host's file.
func specify(t *testing.T, mount string) {
	t.Helper()
	file := filepath.Join(os.Getenv("MUSTER_TEST_CDI"), "nvidia.json")
	spec := `{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "` + gpuA + `", "containerEdits":
		{"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/zero", "type": "c", "major": 1, "minor": 5}],
		"mounts": [{"hostPath": "` + mount + `", "containerPath": "/lib/libcuda.so.1", "options": ["ro", "bind"]}]}}]}`
	if err := os.WriteFile(file, []byte(spec), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file) })
}

func hooked(container string) bool {
	b, _ := os.ReadFile(os.Getenv("MUSTER_TEST_HOOKED"))
	return strings.Contains(string(b), container)
}

// A GPU that a CDI specification names is in the container, by CDI and not by NVIDIA's hook.
func TestEngineAttachesByCDI(t *testing.T) {
	if os.Getenv("MUSTER_TEST_ENGINE") == "20.10" {
		e, _, _ := setUp(t)
		specify(t, os.Args[0])
		if f := e.Facts(t.Context()); len(f.CDI.Devices) > 0 {
			t.Errorf("this Docker has no CDI: %+v", f.CDI)
		}
		return
	}
	library := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(library, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	specify(t, library)
	if w, container := attach(t); w.Reason != agentapi.ReasonCommandNotFound || hooked(container) {
		t.Errorf("%+v, by the hook: %t", w, hooked(container))
	}
}

// A specification of a driver that was replaced names files that are gone. NVIDIA's hook is used then, whatever Docker
// itself prefers. It is a stand-in here, which makes no device.
func TestEngineAttachesByTheHookDespiteAStaleSpecification(t *testing.T) {
	specify(t, filepath.Join(t.TempDir(), "libcuda.so.550"))
	if w, container := attach(t); w.Reason != agentapi.ReasonGPUFailed || !hooked(container) {
		t.Errorf("%+v, by the hook: %t", w, hooked(container))
	}
}
