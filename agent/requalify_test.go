package agent_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/agent"
	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// A quarantined GPU is put back into service at the operator's request, which comes with the desired state, and the
// result is reported until the server has it, also by an agent that was restarted meanwhile.
func TestGPUsAreRequalifiedOnRequest(t *testing.T) {
	t.Parallel()
	monitor, profile, path := fakeGPUs(t, 2)
	fault := func(i int, f func(*fakeprofile.GPU)) {
		t.Helper()
		if err := fakeprofile.Change(path, func(p *fakeprofile.Profile) error { f(&p.GPUs[i]); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	becomes := func(i int, want gpu.State) {
		t.Helper()
		poll(t, string(want), func() bool { return monitor.Diagnosis.Health()[profile.GPUs[i].UUID].State == want })
	}
	h := newHost(t)
	h.stop()
	h.gpus = agent.MonitoredGPUs(monitor)
	h.start()
	becomes(0, gpu.Healthy)
	fault(0, func(g *fakeprofile.GPU) { g.RaiseXid(79) })
	fault(1, func(g *fakeprofile.GPU) { g.RecoveryAction = wire.RecoverReboot })
	becomes(0, gpu.Quarantined)
	becomes(1, gpu.Quarantined)
	fault(0, func(g *fakeprofile.GPU) { *g = profile.GPUs[0] })
	orders := []agentapi.GPUOrder{{GPU: profile.GPUs[0].UUID, Number: 1}, {GPU: profile.GPUs[1].UUID, Number: 7}}
	result := func(want agentapi.GPUOrder, says string) {
		t.Helper()
		h.awaitReport("the result for "+want.GPU, func(s agentapi.Sync) bool {
			for _, r := range s.Requalified {
				if r.GPUOrder == want {
					return strings.Contains(r.Error, says) && (says != "") == (r.Error != "")
				}
			}
			return false
		})
	}
	h.requalify(orders...)
	result(orders[0], "")
	result(orders[1], "still quarantined")
	becomes(0, gpu.Healthy)

	h.stop() // before the server has stored anything: it asks again
	h.start()
	result(orders[0], "")
	h.acknowledgeRequalified()
	h.awaitReport("no result", func(s agentapi.Sync) bool { return len(s.Requalified) == 0 })
}
