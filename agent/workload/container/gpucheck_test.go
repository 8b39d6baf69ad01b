package container

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/agent/machine/gpucheck/cuda"
	"github.com/musterhq/muster/agent/machine/gpucheck/fakecuda"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
)

// TestMain is also the program of the check, in containers.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "gpucheck" {
		os.Exit(cuda.Main(os.Args[2:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

const gpuA, gpuB = "GPU-eeaeac46-8f98-4be3-9af6-0f43bc42566c", "GPU-1e28fe6a-da39-4285-9e4e-082eeb6acf12"

// checking makes an engine check simulated GPUs, and returns how to set what is wrong with them.
func checking(t *testing.T, e *Engine) (faults func(...string)) {
	t.Helper()
	library := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := fakecuda.Build(library); err != nil {
		t.Fatal(err)
	}
	dir, err := gpucheck.Prepare(t.TempDir(), library, "")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := gpucheck.Prepare(filepath.Dir(dir), library, ""); err != nil || again != dir {
		t.Fatalf("prepared again: %s, %v", again, err)
	}
	e.cfg.CheckDir, e.cfg.FakeCUDA = dir, true
	faults = func(lines ...string) {
		if err := fakecuda.Save(filepath.Join(dir, "gpus"), []string{gpuA, gpuB}, lines...); err != nil {
			t.Fatal(err)
		}
	}
	faults()
	return faults
}

// The check runs in an image that has no file at all, so no C library either: it brings its own. GPUs that compute let
// the start go on (here to a command that the image does not have); others end it before the barrier, by name.
func TestAWorkloadsGPUsAreCheckedInItsContainer(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T, lines ...string) guest.Workload {
		e, spec, files := setUp(t)
		checking(t, e)(lines...)
		spec.GPUs, spec.RAMMB, spec.Command = []string{gpuA, gpuB}, 1024, []string{"/no/such/command"}
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
		if _, err := e.EnsureWorkload(ctx, WorkloadSpec{Lease: spec, Guest: g.ID, ImageID: image, Files: files}); err != nil {
			t.Fatal(err)
		}
		for ctx.Err() == nil {
			if w, err := guest.Dial(files.HoldSocket).Next(ctx, guest.StateNone); err == nil && w.State != guest.StateNone {
				return w
			}
		}
		t.Fatal("the init never reported")
		return guest.Workload{}
	}
	t.Run("computes", func(t *testing.T) {
		if w := start(t); w.Reason != agentapi.ReasonCommandNotFound {
			t.Errorf("%+v", w)
		}
	})
	t.Run("without its fabric", func(t *testing.T) {
		if w := start(t, "error cuCtxCreate 802 "+gpuB); w.Reason != agentapi.ReasonGPUFailed || w.GPUCheck == nil ||
			w.GPUCheck.Code != 802 || !strings.Contains(w.Detail, gpuB) ||
			!strings.Contains(w.Detail, "CUDA_ERROR_SYSTEM_NOT_READY") {
			t.Errorf("%+v, %+v", w, w.GPUCheck)
		}
	})
}

// GPUs of no lease are checked in a container of their own, of which nothing is left.
func TestCheckGPUs(t *testing.T) {
	t.Parallel()
	e, _, _ := setUp(t)
	faults := checking(t, e)
	both := []string{gpuA, gpuB}
	res, err := e.CheckGPUs(t.Context(), both, nil)
	if err != nil || res.Failure != nil || len(res.GPUs) != 2 || res.GPUs[0].TFLOPS <= 0 {
		t.Errorf("%v, %+v", err, res)
	}
	faults("wrong cuMemcpyDtoH " + gpuA)
	res, err = e.CheckGPUs(t.Context(), both, nil)
	if err != nil || res.Failure == nil || res.Failure.Kind != gpucheck.KindWrong ||
		fmt.Sprint(res.Failure.GPUs) != fmt.Sprint([]string{gpuA}) {
		t.Errorf("%v, %+v", err, res)
	}
	if res, err := e.CheckGPUs(t.Context(), []string{gpuA}, nil); err != nil || res.Failure == nil ||
		res.Failure.Kind != gpucheck.KindExtra {
		t.Errorf("another GPU is in the container too: %v, %+v", err, res)
	}
	if left, err := e.docker.ContainerInspect(t.Context(), e.checkName(both),
		client.ContainerInspectOptions{}); err == nil {
		t.Errorf("left behind: %+v", left.Container.Name)
	}
	if all, err := e.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %+v", err, all)
	}
}
