package agent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/gpu"
	"github.com/musterhq/muster/agent/gpu/fakeprofile"
	"github.com/musterhq/muster/internal/agentapi"
)

// probeEnv names the NVML library and makes this executable the probe, which calls it.
const probeEnv = "MUSTER_TEST_AGENT_PROBE"

// A GPU whose driver says that it has fallen off the bus (Xid 79), under a running command, is told as that command's trouble, with the GPU and its Xid, and
// as the GPU's health. Nothing is stopped for it: that is for the server to decide. A command on the GPU beside it is
// well. The faults come out of the NVML library, through the probe and the monitor that real hosts have.
func TestADeadGPUIsTheTroubleOfItsCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	library, path := filepath.Join(dir, "libnvidia-ml.so.1"), filepath.Join(dir, "profile")
	if err := fakeprofile.BuildLibrary(library); err != nil {
		t.Fatal(err)
	}
	profile, err := fakeprofile.Host("NVIDIA H100 80GB HBM3", 2, t.Name())
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
	monitor, err := gpu.Start(t.Context(), gpu.Config{Exe: []string{exe}, Env: []string{probeEnv + "=" + library, fakeprofile.Env + "=" + path},
		LibraryPath: library, StateDir: filepath.Join(dir, "health")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { monitor.Close() })

	h := newHost(t)
	h.stop()
	h.gpus = monitor
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
	poll(t, "health of both GPUs", func() bool { return len(monitor.Health()) == 2 })

	if err := fakeprofile.Change(path, func(p *fakeprofile.Profile) error {
		p.GPUs[0].RaiseXid(79)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	st := h.await(dead.LeaseRef, "in trouble", func(st agentapi.LeaseStatus) bool { return st.Trouble == agentapi.ReasonGPUFailed })
	if !strings.Contains(st.TroubleDetail, dead.GPUs[0]+": Xid 79") || st.Good || st.State != agentapi.NodeReady || st.Reason != "" {
		t.Errorf("%s", said(st))
	}
	h.awaitReport("the dead GPU's Xid", func(s agentapi.Sync) bool {
		return slices.ContainsFunc(s.Health, func(e agentapi.HealthEvent) bool {
			return e.GPU == dead.GPUs[0] && e.Xid == 79 && e.State == string(gpu.Quarantined) && e.Detail != ""
		})
	})
	h.await(well.LeaseRef, "well", running)
}
