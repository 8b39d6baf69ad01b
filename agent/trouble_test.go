package agent

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

type sickGPUs struct {
	GPUDiagnosis
	GPUOwners
	health map[string]gpu.Health
}

func (g sickGPUs) parts() GPUs { return GPUs{Diagnosis: g, Owners: g} }

func (g sickGPUs) Health() map[string]gpu.Health { return g.health }
func (sickGPUs) Pending() []agentapi.HealthEvent { return nil }
func (sickGPUs) OwnerUse() map[string]int64      { return nil }

// What the host sees wrong with a running node is reported by kind: its GPU, its overlay, the container engine.
func TestTheKindOfTroubleIsTold(t *testing.T) {
	t.Parallel()
	xid := map[string]gpu.Health{"GPU-1": {State: gpu.Quarantined, Reason: "Xid 79: GPU has fallen off the bus"}}
	for _, tc := range []struct {
		name    string
		health  map[string]gpu.Health
		overlay bool
		err     error
		trouble string
		says    string
	}{
		{name: "well", overlay: true},
		{name: "another's GPU", overlay: true, health: map[string]gpu.Health{"GPU-2": xid["GPU-1"]}},
		{name: "GPU", overlay: true, health: xid, trouble: agentapi.ReasonGPUFailed, says: "GPU-1: Xid 79"},
		{name: "overlay", trouble: agentapi.ReasonOverlayFailed, says: "network does not answer"},
		{name: "both: the GPU is the worse", health: xid, trouble: agentapi.ReasonGPUFailed, says: "Xid 79"},
		{
			name:    "engine",
			overlay: true,
			err:     errors.New("refused"),
			trouble: agentapi.ReasonRuntimeFailed,
			says:    "container engine does not answer",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
			rec := record{Spec: agentapi.LeaseSpec{LeaseRef: ref, GPUs: []string{"GPU-1"}}, BootID: "b1", Started: true}
			a, err := New(Config{
				StateDir: t.TempDir(),
				BootID:   "b1",
				BootMS:   func() int64 { return 1 },
				Now:      time.Now,
				GPUs:     sickGPUs{health: tc.health}.parts(),
				Log:      slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer a.journal.Close()
			r := a.runs.add(ref, rec)
			v := view{rec: rec, boot: "b1", overlay: true}
			a.report(r, v, step{do: actWatch})
			v.overlay = tc.overlay
			a.report(r, v, step{do: actWatch})
			if tc.err != nil {
				a.unseen(r, tc.err)
			}
			if st := r.status; st.Good != (tc.trouble == "") || st.Trouble != tc.trouble ||
				!strings.Contains(st.TroubleDetail, tc.says) || st.State != agentapi.NodeReady {
				t.Errorf("%+v", st)
			}
			a.report(r, view{rec: rec, boot: "b1", overlay: true}, step{do: actWatch})
			if st := r.status; tc.health == nil && (!st.Good || st.Trouble != "") {
				t.Errorf("all is well again, and it says %+v", st)
			}
		})
	}
}
