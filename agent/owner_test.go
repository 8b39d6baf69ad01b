package agent_test

import (
	"os"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent"
	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/internal/agentapi"
)

// A renter who rented a GPU just when its owner began to use it is refused, pays nothing, and learns nothing about what
// the owner runs. The other GPU can still be rented.
func TestALeaseIsRefusedWhileTheOwnerUsesItsGPU(t *testing.T) {
	t.Parallel()
	monitor, profile, path := fakeGPUs(t, 2)
	h := newHost(t)
	h.stop()
	h.gpus = agent.MonitoredGPUs(monitor)
	h.start()
	inUse := func() bool {
		inv, err := monitor.Inventory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(inv.GPUs) == 2 && inv.GPUs[0].InUse != "" && inv.GPUs[1].InUse == ""
	}
	if err := fakeprofile.SetProcesses(path, map[string][]fakeprofile.Process{profile.GPUs[0].UUID: {{
		PID:      os.Getpid(),
		MemMB:    9000,
		Graphics: true,
	}}}); err != nil {
		t.Fatal(err)
	}
	poll(t, "the GPU in use in the inventory", inUse)
	used, free := h.spec(), h.spec()
	used.GPUs, free.GPUs = []string{profile.GPUs[0].UUID}, []string{profile.GPUs[1].UUID}
	h.want(used, free)
	st := h.await(used.LeaseRef, "refused", func(st agentapi.LeaseStatus) bool { return st.State == agentapi.NodeFailed })
	if st.Reason != agentapi.ReasonGPUInUse || st.Started || !strings.Contains(st.Detail, profile.GPUs[0].UUID) ||
		strings.Contains(st.Detail, "MiB") {
		t.Errorf("%s", replies(st))
	}
	h.await(free.LeaseRef, "ready", ready)
	h.want()
	h.await(used.LeaseRef, "gone", gone)
	poll(t, "the GPU still in use in the inventory", inUse)
}
