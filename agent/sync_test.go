package agent

import (
	"log/slog"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

type quietGPUs struct{ GPUs }

func (quietGPUs) Pending() []agentapi.HealthEvent { return nil }

// A process that was just started says nothing of a command it has not looked at: it would say that it is not well,
// and billing would be suspended for nothing. A report that leaves something out is no full one.
func TestNothingIsSaidOfARunThatWasNotLookedAt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	cfg := Config{StateDir: t.TempDir(), BootID: "b1", BootMS: func() int64 { return 1 }, Now: func() time.Time { return now }, GPUs: quietGPUs{}, Log: slog.New(slog.DiscardHandler)}
	d := disk{cfg.StateDir}
	if err := d.prepare(); err != nil {
		t.Fatal(err)
	}
	if err := d.save(ref, record{Spec: agentapi.LeaseSpec{LeaseRef: ref}, BootID: "b1", Started: true}); err != nil {
		t.Fatal(err)
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer a.journal.Close()
	a.scanned = true
	if s, _ := a.sync(); len(s.Leases) != 0 || s.Full {
		t.Errorf("before a look: full %v, %+v", s.Full, s.Leases)
	}
	now = now.Add(takeUp)
	if s, _ := a.sync(); len(s.Leases) != 1 || !s.Full || s.Leases[0].Good {
		t.Errorf("after a long while: full %v, %+v", s.Full, s.Leases)
	}
	if !a.leased() {
		t.Error("the host may sleep")
	}
	now = now.Add(-takeUp)
	a.find(ref).looked = true
	if s, _ := a.sync(); len(s.Leases) != 1 || !s.Full {
		t.Errorf("after a look: full %v, %+v", s.Full, s.Leases)
	}
}
