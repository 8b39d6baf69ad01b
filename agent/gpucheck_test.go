package agent_test

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent"
	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/agent/machine/gpucheck/fakecuda"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
)

// A GPU on which CUDA is dead while NVML is content is found when the agent starts, in a lease's start and after a
// lease: it is suspect, the start fails free of charge in CUDA's words, and a check that it passes ends the
// suspicion. A reset on request ends with the check.
func TestGPUsAreCheckedWithCUDA(t *testing.T) {
	t.Parallel()
	monitor, profile, _ := fakeGPUs(t, 1)
	uuid := profile.GPUs[0].UUID
	library := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := fakecuda.Build(library); err != nil {
		t.Fatal(err)
	}
	dir, err := gpucheck.Prepare(t.TempDir(), library, "")
	if err != nil {
		t.Fatal(err)
	}
	faults := func(lines ...string) {
		t.Helper()
		if err := fakecuda.Save(filepath.Join(dir, "gpus"), []string{uuid}, lines...); err != nil {
			t.Fatal(err)
		}
	}
	health := func(want gpu.State, reason string) {
		t.Helper()
		poll(t, string(want), func() bool {
			h := monitor.Diagnosis.Health()[uuid]
			return h.State == want && strings.Contains(h.Reason, reason)
		})
	}
	faults("error cuInit 802")
	h := newHost(t)
	h.stop()
	before := h.engine
	t.Cleanup(func() { before.Close() })
	h.engine, err = container.New(container.Config{Host: h.id, GuestBinary: built.guest, Simulated: true, CheckDir: dir,
		FakeCUDA: true, Overlay: netip.MustParsePrefix("10.77.0.0/20"), Log: h.log})
	if err != nil {
		t.Fatal(err)
	}
	poll(t, "the GPU", func() bool { return len(monitor.Diagnosis.Health()) == 1 })
	h.gpus = agent.MonitoredGPUs(monitor)
	h.start()
	health(gpu.Suspect, "CUDA_ERROR_SYSTEM_NOT_READY")

	faults() // the fabric manager was started
	spec := h.spec()
	spec.GPUs, spec.RAMMB = []string{uuid}, 1024
	spec = h.launch(spec)
	h.await(spec.LeaseRef, "running", running)
	if got := monitor.Diagnosis.Health()[uuid].State; got != gpu.Suspect {
		t.Errorf("%s before its own check", got)
	}
	h.want()
	h.await(spec.LeaseRef, "gone", gone)
	health(gpu.Healthy, "")

	faults("wrong cuMemcpyDtoH")
	bad := h.spec()
	bad.GPUs, bad.RAMMB = []string{uuid}, 1024
	h.want(bad)
	st := h.await(bad.LeaseRef, "failed", func(st agentapi.LeaseStatus) bool { return st.State == agentapi.NodeFailed })
	if st.Reason != agentapi.ReasonGPUFailed || st.Started || st.AtBarrier || !strings.Contains(st.Detail, uuid) ||
		!strings.Contains(st.Detail, "was written as") {
		t.Errorf("%s", replies(st))
	}
	health(gpu.Suspect, "was written as")

	h.want()
	h.await(bad.LeaseRef, "gone", gone)
	requalified := func(number int64, says string) {
		t.Helper()
		order := agentapi.GPUOrder{GPU: uuid, Number: number}
		h.requalify(order)
		h.awaitReport("the result of the reset", func(s agentapi.Sync) bool {
			return slices.ContainsFunc(s.Requalified, func(r agentapi.GPUResult) bool {
				return r.GPUOrder == order && strings.Contains(r.Error, says) && (r.Error == "") == (says == "")
			})
		})
	}
	requalified(1, "was written as") // a reset alone does not make it healthy
	health(gpu.Suspect, "was written as")
	faults()
	requalified(2, "")
	health(gpu.Healthy, "")
}
