package agent_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent"
	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/internal/agentapi"
)

// probeEnv names the NVML library and makes this executable the probe, which calls it.
const probeEnv = "MUSTER_TEST_AGENT_PROBE"

// When the driver reports that a GPU has fallen off the bus (Xid 79) while a command uses it, the agent reports the GPU
// and the Xid as that command's trouble and as the GPU's health. It stops nothing: that is for the server to decide. A
// command on another GPU stays healthy. The faults come from the NVML library through the probe and the monitor, as on
// real hosts.
func TestADeadGPUIsTheTroubleOfItsCommand(t *testing.T) {
	t.Parallel()
	monitor, profile, path := fakeGPUs(t, 2)

	h := newHost(t)
	h.stop()
	h.gpus = agent.MonitoredGPUs(monitor)
	h.start()
	dead, well := h.spec(), h.spec()
	dead.GPUs, well.GPUs = []string{profile.GPUs[0].UUID}, []string{profile.GPUs[1].UUID}
	h.want(dead, well)
	h.await(dead.LeaseRef, "ready", ready)
	h.await(well.LeaseRef, "ready", ready)
	dead.Go, well.Go = true, true
	h.want(dead, well)
	h.await(dead.LeaseRef, "running", running)
	h.await(well.LeaseRef, "running", running)
	poll(t, "health of both GPUs", func() bool { return len(monitor.Diagnosis.Health()) == 2 })

	if err := fakeprofile.Change(path, func(p *fakeprofile.Profile) error {
		p.GPUs[0].RaiseXid(79)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	st := h.await(dead.LeaseRef, "in trouble",
		func(st agentapi.LeaseStatus) bool { return st.Trouble == agentapi.ReasonGPUFailed })
	if !strings.Contains(st.TroubleDetail, dead.GPUs[0]+": Xid 79") || st.Good || st.State != agentapi.NodeReady ||
		st.Reason != "" {
		t.Errorf("%s", replies(st))
	}
	h.awaitReport("the dead GPU's Xid", func(s agentapi.Sync) bool {
		return slices.ContainsFunc(s.Health, func(e agentapi.HealthEvent) bool {
			return e.GPU == dead.GPUs[0] && e.Xid == 79 && e.State == string(gpu.Quarantined) && e.Detail != ""
		})
	})
	h.await(well.LeaseRef, "well", running)
}

// fakeGPUs are GPUs that come out of the NVML library, through the probe and the monitor that real hosts have; faults
// are written into the profile at path.
func fakeGPUs(t *testing.T, n int) (monitor *gpu.Monitor, profile *fakeprofile.Profile, path string) {
	t.Helper()
	dir := t.TempDir()
	library := filepath.Join(dir, "libnvidia-ml.so.1")
	path = filepath.Join(dir, "profile")
	if err := fakeprofile.BuildLibrary(library); err != nil {
		t.Fatal(err)
	}
	profile, err := fakeprofile.Host("NVIDIA H100 80GB HBM3", n, t.Name())
	if err == nil {
		err = profile.Save(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	monitor, err = gpu.Start(t.Context(), gpu.Config{
		Exe:         []string{exe},
		Env:         []string{probeEnv + "=" + library, fakeprofile.Env + "=" + path},
		LibraryPath: library,
		StateDir:    filepath.Join(dir, "health"),
		ProcFS:      filepath.Join(dir, "proc"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { monitor.Close() })
	return monitor, profile, path
}

// After a lease, one of its processes still holds memory of its GPU: the lease is not gone, and the GPU is suspect,
// with a problem for the operator that names the process. Both end with the process. Other GPUs stay healthy
// throughout.
func TestMemoryThatALeaseLeavesOnAGPU(t *testing.T) {
	t.Parallel()
	monitor, profile, path := fakeGPUs(t, 2)
	h := newHost(t)
	h.stop()
	h.gpus, h.real, h.cleanIn = agent.MonitoredGPUs(monitor), true, time.Second
	h.start()
	poll(t, "health of both GPUs", func() bool { return len(monitor.Diagnosis.Health()) == 2 })
	spec := h.spec()
	spec.GPUs = []string{profile.GPUs[0].UUID}
	spec = h.launch(spec)
	h.await(spec.LeaseRef, "running", running)

	left := exec.Command("sleep", "3600") // a process that has got out of the container's end
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(filepath.Dir(path), "proc", strconv.Itoa(left.Process.Pid), "cgroup")
	if err := errors.Join(os.MkdirAll(filepath.Dir(group), 0o755),
		os.WriteFile(group, []byte("0::/docker/"+strings.Repeat("3f2a", 16)+"\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = left.Process.Kill()
			_ = left.Wait()
		}
	}
	t.Cleanup(end)
	if err := fakeprofile.SetProcesses(path, map[string][]fakeprofile.Process{spec.GPUs[0]: {{
		PID:   left.Process.Pid,
		MemMB: 20_000,
	}}}); err != nil {
		t.Fatal(err)
	}
	h.want()
	h.awaitReport("a suspect GPU", func(s agentapi.Sync) bool {
		return slices.ContainsFunc(s.Health, func(e agentapi.HealthEvent) bool {
			return e.GPU == spec.GPUs[0] && e.Kind == "memory_held" && e.State == string(gpu.Suspect) &&
				strings.Contains(e.Detail, fmt.Sprint(left.Process.Pid))
		})
	})
	health := monitor.Diagnosis.Health()
	if health[spec.GPUs[0]].State != gpu.Suspect || health[profile.GPUs[1].UUID].State != gpu.Healthy {
		t.Errorf("%+v", health)
	}
	st := h.await(spec.LeaseRef, "stopped", func(st agentapi.LeaseStatus) bool { return st.State == agentapi.NodeStopped })
	if st.Gone {
		t.Error("the lease is gone though its memory is held")
	}
	end()
	h.await(spec.LeaseRef, "gone", gone)
	poll(t, "a GPU that is well again", func() bool {
		return monitor.Diagnosis.Health()[spec.GPUs[0]].State == gpu.Healthy
	})
	h.awaitReport("that it is well", func(s agentapi.Sync) bool {
		return slices.ContainsFunc(s.Health, func(e agentapi.HealthEvent) bool {
			return e.GPU == spec.GPUs[0] &&
				e.Kind == "recovered"
		})
	})
}
