package gpu

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
)

// unknownPower makes a GPU answer its power with an unknown error.
func unknownPower(g *fakeprofile.GPU) {
	g.Errors = []fakeprofile.Error{{Function: "nvmlDeviceGetPowerUsage", Code: 999}}
}

// A GPU that never answered a call but with an unknown error is healthy; one that did before is suspect, also for an
// agent that was restarted between.
func TestAnUnknownErrorCountsOnceTheCallWasAnswered(t *testing.T) {
	t.Parallel()
	h := newHost(t, "NVIDIA GeForce RTX 4090", 2)
	h.fault(t, 0, unknownPower)
	m := h.start(t)
	becomes(t, m, h.uuid(0), Healthy)
	becomes(t, m, h.uuid(1), Healthy)
	inventory(t, m) // a whole look
	for uuid, got := range m.Diagnosis.Health() {
		if got.State != Healthy {
			t.Errorf("%s: %+v", uuid, got)
		}
	}
	if events := m.Diagnosis.Pending(); len(events) != 0 {
		t.Errorf("events: %+v", events)
	}
	m.Close()
	h.fault(t, 1, unknownPower)
	m = h.start(t)
	becomes(t, m, h.uuid(1), Suspect)
	inventory(t, m)
	if got := m.Diagnosis.Health()[h.uuid(0)]; got.State != Healthy {
		t.Errorf("the one that never answered: %+v", got)
	}
}

// An unknown error is no evidence for a while after the host was suspended, and is afterwards.
func TestAnUnknownErrorAfterASuspensionIsNoEvidence(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*fakeprofile.GPU){
		"of one call": unknownPower,
		"of all": func(g *fakeprofile.GPU) {
			for _, f := range []string{"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetPowerUsage"} {
				g.Errors = append(g.Errors, fakeprofile.Error{Function: f, Code: 999})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, h100, 1)
			start := time.Now()
			var later, slept atomic.Int64
			m := h.start(t, func(c *Config) {
				c.Now = func() time.Time { return start.Add(time.Duration(later.Load())) }
				c.slept = func() time.Duration { return time.Duration(slept.Load()) }
			})
			becomes(t, m, h.uuid(0), Healthy)
			inventory(t, m)
			slept.Store(int64(time.Hour))
			h.fault(t, 0, fault)
			for range 3 {
				inventory(t, m)
			}
			if got := m.Diagnosis.Health()[h.uuid(0)]; got.State != Healthy {
				t.Fatalf("just awake: %+v", got)
			}
			later.Store(int64(2 * time.Minute))
			becomes(t, m, h.uuid(0), Suspect)
		})
	}
}
