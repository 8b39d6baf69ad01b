package gpu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/amd"
	"github.com/musterhq/muster/agent/machine/gpu/device"
	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/machine/gpu/probe"
	"github.com/musterhq/muster/internal/agentapi"
)

// probeEnv makes this test binary the probe: the monitor under test runs a real child with real NVML calls.
const probeEnv = "MUSTER_TEST_PROBE"

const h100, rtx4090 = "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090"

// libraries are built once: the whole fake, and one as of an old driver.
var library, oldLibrary string

// later are functions that drivers still in use do not have.
var later = []string{
	"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryAffinity", "nvmlDeviceGetGpuFabricInfoV",
	"nvmlSystemGetConfComputeState", "nvmlDeviceGetFieldValues",
	"nvmlDeviceGetRemappedRows", "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetArchitecture",
	"nvmlDeviceGetMigMode",
	"nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor", "nvmlSystemGetCudaDriverVersion_v2",
	"nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetComputeRunningProcesses_v2",
	"nvmlDeviceGetComputeRunningProcesses_v3",
	"nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlEventSetWait_v2",
	"nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetSerial", "nvmlDeviceGetTotalEccErrors",
	"nvmlDeviceGetTemperature", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetCurrentClocksEventReasons",
}

func TestMain(m *testing.M) {
	if os.Getenv(probeEnv) != "" {
		var err error
		if os.Args[len(os.Args)-1] == agentapi.AMD {
			err = device.Serve(context.Background(), os.Stdin, os.Stdout, amd.New(os.Getenv(amd.TreeEnv)))
		} else {
			err = probe.Run(context.Background(), os.Stdin, os.Stdout, os.Getenv(LibraryEnv))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fakenvml")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	library, oldLibrary = filepath.Join(dir, "libnvidia-ml.so.1"), filepath.Join(dir, "old.so")
	for path, omit := range map[string][]string{library: nil, oldLibrary: later} {
		if err := fakeprofile.BuildLibrary(path, omit...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// host is a simulated host: its profile and its state survive restarts of the monitor.
type host struct {
	*fakeprofile.Profile
	path, state string
}

func newHost(t *testing.T, model string, count int) *host {
	t.Helper()
	p, err := fakeprofile.Host(model, count, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Profile: p, path: filepath.Join(t.TempDir(), "profile"), state: t.TempDir()}
	if err := p.Save(h.path); err != nil {
		t.Fatal(err)
	}
	return h
}

// fault changes GPU i of the running host.
func (h *host) fault(t *testing.T, i int, change func(g *fakeprofile.GPU)) {
	t.Helper()
	if err := fakeprofile.Change(h.path, func(p *fakeprofile.Profile) error {
		change(&p.GPUs[i])
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (h *host) uuid(i int) string { return h.GPUs[i].UUID }

// config is for quick tests: short waits, a real probe child.
func (h *host) config(t *testing.T) Config {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Exe:         []string{exe},
		Env:         []string{probeEnv + "=1", fakeprofile.Env + "=" + h.path},
		LibraryPath: library,
		StateDir:    h.state,
		timing: timing{
			call:    10 * time.Second,
			start:   10 * time.Second,
			restart: time.Millisecond,
			maxRest: 50 * time.Millisecond,
			shun:    100 * time.Millisecond,
			maxShun: 200 * time.Millisecond,
			watch:   20 * time.Millisecond,
		},
	}
}

func (h *host) start(t *testing.T, change ...func(*Config)) *Monitor {
	t.Helper()
	cfg := h.config(t)
	for _, c := range change {
		c(&cfg)
	}
	m, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// eventually polls until ok, and fails the test with what was seen last.
func eventually(t *testing.T, what string, ok func() (seen any, done bool)) {
	t.Helper()
	deadline := time.After(90 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		seen, done := ok()
		if done {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("never %s; last seen: %+v", what, seen)
		case <-tick.C:
		}
	}
}

// becomes waits for a GPU's state.
func becomes(t *testing.T, m *Monitor, uuid string, want State) Health {
	t.Helper()
	var h Health
	eventually(t, uuid+" "+string(want), func() (any, bool) {
		h = m.Diagnosis.Health()[uuid]
		return h, h.State == want
	})
	return h
}

func inventory(t *testing.T, m *Monitor) Inventory {
	t.Helper()
	inv, err := m.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return inv
}
