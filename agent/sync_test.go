package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

type quietGPUs struct{ GPUDiagnosis }

func (quietGPUs) Pending() []agentapi.HealthEvent { return nil }

// A process that was just started says nothing of a command it has not looked at: it would say that it is not well,
// and billing would be suspended for nothing. A report that leaves something out is no full one.
func TestNothingIsSaidOfARunThatWasNotLookedAt(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	cfg := Config{
		StateDir: t.TempDir(),
		BootID:   "b1",
		BootMS:   func() int64 { return 1 },
		Now:      func() time.Time { return now },
		GPUs:     GPUs{Diagnosis: quietGPUs{}},
		Log:      slog.New(slog.DiscardHandler),
	}
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
	a.runs.scanned = true
	if s, _ := a.sync(); len(s.Leases) != 0 || s.Full {
		t.Errorf("before a look: full %v, %+v", s.Full, s.Leases)
	}
	now = now.Add(takeUp)
	if s, _ := a.sync(); len(s.Leases) != 1 || !s.Full || s.Leases[0].Good {
		t.Errorf("after a long while: full %v, %+v", s.Full, s.Leases)
	}
	if !a.runs.leased() {
		t.Error("the host may sleep")
	}
	now = now.Add(-takeUp)
	a.runs.find(ref).looked = true
	if s, _ := a.sync(); len(s.Leases) != 1 || !s.Full {
		t.Errorf("after a look: full %v, %+v", s.Full, s.Leases)
	}
}

// The first look and what it saw come out together, however a report falls: the state from before it, of a command that
// is not well, is never let out.
func TestTheFirstLookIsSaidInOne(t *testing.T) {
	t.Parallel()
	ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	rec := record{Spec: agentapi.LeaseSpec{LeaseRef: ref}, BootID: "b1", Started: true}
	now := time.Now() // it stands: after a while an agent reports runs it could not look at
	for range 300 {
		a, err := New(Config{
			StateDir: t.TempDir(),
			BootID:   "b1",
			BootMS:   func() int64 { return 1 },
			Now:      func() time.Time { return now },
			GPUs:     sickGPUs{}.parts(),
			Log:      slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		r := a.runs.add(ref, rec)
		looked := make(chan struct{})
		go func() {
			defer close(looked)
			a.report(r, view{rec: rec, boot: "b1", overlay: true}, step{do: actWatch})
		}()
		for said := false; !said; {
			s, _ := a.sync()
			if said = len(s.Leases) > 0; said && !s.Leases[0].Good {
				t.Errorf("%+v", s.Leases)
			}
		}
		<-looked
		if err := a.journal.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A run that ended while its agent was away is reported once, with how it ended, even if a report is made between the
// record of its end and its status.
func TestAnEndThatIsFoundIsSaidInOne(t *testing.T) {
	t.Parallel()
	ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	rec := record{Spec: agentapi.LeaseSpec{LeaseRef: ref}, BootID: "b1", Started: true}
	cfg := Config{
		StateDir: t.TempDir(),
		BootID:   "b1",
		BootMS:   func() int64 { return 1 },
		Now:      time.Now,
		GPUs:     sickGPUs{}.parts(),
		Log:      slog.New(slog.DiscardHandler),
	}
	d := disk{cfg.StateDir}
	must(t, d.prepare(), d.save(ref, rec))
	a, err := New(cfg)
	must(t, err)
	defer func() { a.journal.Close() }()
	r, code := a.runs.find(ref), 0
	v := view{rec: rec, boot: "b1"}
	v.work.State = container.Exited
	end := &outcome{State: agentapi.NodeStopped, Reason: agentapi.ReasonExited, ExitCode: &code}
	a.report(r, v, step{do: actConclude, outcome: end})
	must(t, a.conclude(r, v, end))
	if s, _ := a.sync(); len(s.Leases) != 0 || s.Full {
		t.Errorf("before it is said how it ended: %+v", s.Leases)
	}
	v.rec = r.rec
	a.report(r, v, step{do: actKeepLog})
	reported := func(when string) {
		t.Helper()
		if s, _ := a.sync(); len(s.Leases) != 1 || s.Leases[0].ExitCode == nil ||
			s.Leases[0].Reason != agentapi.ReasonExited {
			t.Errorf("%s: %+v", when, s.Leases)
		}
	}
	reported("when it is")
	a.journal.Close()
	a, err = New(cfg)
	must(t, err)
	reported("by the next agent, at once")
}

// A new relay token comes with the authorised time and is kept in memory only. A view of the run that was taken before
// keeps its token, and an overlay that has the old token gets the new one.
func TestRelayTokensAreRenewed(t *testing.T) {
	t.Parallel()
	ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	cfg := Config{
		StateDir: t.TempDir(),
		BootID:   "b1",
		BootMS:   func() int64 { return 1 },
		Now:      time.Now,
		GPUs:     sickGPUs{}.parts(),
		Log:      slog.New(slog.DiscardHandler),
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer a.journal.Close()
	spec := agentapi.LeaseSpec{
		LeaseRef: ref,
		Nodes:    2,
		Network:  agentapi.Network{Relays: []string{"relay.example:3478"}, RelayToken: "first"},
	}
	if err := a.take(agentapi.Sync{}, nil, agentapi.SyncReply{
		ControlEpoch: 1,
		Desired:      &agentapi.Desired{ControlEpoch: 1, Revision: 1, Leases: []agentapi.LeaseSpec{spec}},
	}); err != nil {
		t.Fatal(err)
	}
	r := a.runs.find(ref)
	before := r.want
	given := relayAccess{spec.Network.Relays, "first"}
	if given.stale(r.want.Network) {
		t.Error("the overlay has the wanted token, and it is stale")
	}
	extend := func(until int64, token string) {
		t.Helper()
		reply := agentapi.SyncReply{
			ControlEpoch: 1,
			Revision:     1,
			Extensions:   []agentapi.LeaseExtension{{LeaseRef: ref, RunUntilMS: until, RelayToken: token}},
		}
		if err := a.take(agentapi.Sync{}, nil, reply); err != nil {
			t.Fatal(err)
		}
	}
	extend(5_000, "") // of a server without relays, or of an older one
	if r.want != before {
		t.Error("nothing was renewed, and the specification changed")
	}
	extend(9_000, "second")
	if r.rec.RunUntilMS != 9_000 || r.want.Network.RelayToken != "second" || !given.stale(r.want.Network) {
		t.Errorf("until %d with %q", r.rec.RunUntilMS, r.want.Network.RelayToken)
	}
	if before.Network.RelayToken != "first" {
		t.Error("a view that is being acted on was changed")
	}
	if rec, err := a.disk.load(ref); err != nil || rec.Spec.Network.RelayToken != "" {
		t.Errorf("on the disk: %q %v", rec.Spec.Network.RelayToken, err)
	}
	// Telling the overlay is no trouble of the command, and nothing for people to see.
	a.report(r, view{
		rec:     record{Spec: spec, BootID: "b1", Started: true},
		boot:    "b1",
		overlay: true,
	}, step{do: actSetRelays})
	if st := r.status; !st.Good || st.Trouble != "" || st.Progress.Step != "" {
		t.Errorf("while the overlay gets the token: %+v", st)
	}
	// After a restart, before the server's first reply, no token is known: the overlay keeps what it has.
	if given.stale(withoutSecrets(*r.want).Network) {
		t.Error("an agent without a token would take the overlay's")
	}
}

func TestRetryDelay_Grows(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		failures      int
		leased        bool
		least, beyond time.Duration
	}{
		{0, false, time.Second, 3 * time.Second},
		{2, false, 4 * time.Second, 12 * time.Second},
		{50, false, 30 * time.Second, 90 * time.Second},
		{50, true, 2500 * time.Millisecond, 7500 * time.Millisecond},
	} {
		for range 100 {
			if d := retryDelay(tc.failures, tc.leased); d < tc.least || d >= tc.beyond {
				t.Fatalf("%d failures, leased %t: %v", tc.failures, tc.leased, d)
			}
		}
	}
}

// A lease whose record cannot be read waits. The others of the same state start, and the acknowledgements count.
func TestTake_ABadLeaseCostsOnlyItself(t *testing.T) {
	t.Parallel()
	a := newWoken(t)
	bad, good := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1},
		agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	must(t, os.MkdirAll(filepath.Join(a.disk.ended(), bad.Lease+".json"), 0o700)) // a folder: it cannot be read as a file
	s, gone := a.sync()
	s.Pulled = &agentapi.Pulled{Counter: "c", Bytes: 7}
	err := a.take(s, gone, agentapi.SyncReply{ControlEpoch: 1, Desired: desiredAt(1, 6, bad, good), StatusAck: s.Seq})
	if r := a.runs.find(good); err == nil || r == nil || r.want == nil || a.images.pulls.reported != *s.Pulled {
		t.Errorf("%v; run %+v", err, r)
	}
}

// What does not fit into a report is not gone in it.
func TestBounded_WhatIsLeftOutIsNotGone(t *testing.T) {
	t.Parallel()
	a := newWoken(t)
	a.runs.scanned = true
	for n := range agentapi.MaxStatuses + 50 {
		a.runs.add(agentapi.LeaseRef{Lease: fmt.Sprintf("ls_%d", n), Epoch: 1}, record{Gone: true})
	}
	a.runs.mu.Lock()
	for _, l := range a.runs.leases {
		l.runs[0].status = agentapi.LeaseStatus{LeaseRef: l.runs[0].ref, Gone: true}
	}
	a.runs.mu.Unlock()
	s, gone := a.bounded(a.sync())
	if len(s.Leases) != agentapi.MaxStatuses || len(gone) != len(s.Leases) || s.Full {
		t.Errorf("%d leases, %d gone, full %v", len(s.Leases), len(gone), s.Full)
	}
}
