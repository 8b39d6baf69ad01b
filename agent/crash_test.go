package agent

import (
	"crypto/ed25519"
	"log/slog"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// These are the moments between two writes at which an agent may be killed, and what the next one makes of them.

// crashing is an agent that runs nothing, on a folder of its own, and a run it knows.
func crashing(t *testing.T) (a *Agent, again func() *Agent, ref agentapi.LeaseRef) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1_700_000_000_000)
	cfg := Config{
		Key:      key,
		StateDir: t.TempDir(),
		BootID:   "b1",
		BootMS:   func() int64 { return 9_000 },
		Now:      func() time.Time { return now },
		GPUs:     GPUs{Diagnosis: quietGPUs{}},
		Log:      slog.New(slog.DiscardHandler),
	}
	again = func() *Agent {
		t.Helper()
		if a != nil {
			a.journal.Close() // what a kill does
		}
		if a, err = New(cfg); err != nil {
			t.Fatal(err)
		}
		return a
	}
	t.Cleanup(func() { a.journal.Close() })
	ref = agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	again()
	if err := a.disk.save(ref, record{
		Spec:       agentapi.LeaseSpec{LeaseRef: ref},
		BootID:     "b1",
		Started:    true,
		RunUntilMS: 1,
	}); err != nil {
		t.Fatal(err)
	}
	return again(), again, ref
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ran writes a run from boot 1,000 to 4,000 that the server has acknowledged.
func (a *Agent) ran(t *testing.T, ref agentapi.LeaseRef) {
	t.Helper()
	must(t, a.journal.SetAnchor(agentapi.Anchor{
		BootID:   "b1",
		Number:   1,
		ServerMS: 1_000_000,
	}), a.journal.Start(ref, 1000, nil), a.journal.End(ref, 4000),
		a.journal.Ack([]agentapi.UsageAck{{LeaseRef: ref, BootID: "b1", Through: 1}}))
	if n := len(a.journal.Pending(10)); n != 0 {
		t.Fatalf("%d segments wait", n)
	}
}

// A restored control plane is offered the usage of the last days again, also by an agent that dies over it.
func TestTheReplayForANewEpochIsNotLost(t *testing.T) {
	t.Parallel()
	a, again, ref := crashing(t)
	must(t, a.desired.followEpoch(1))
	a.ran(t, ref)
	a.journal.Close()
	if err := a.desired.followEpoch(2); err == nil {
		t.Fatal("replayed from a closed journal")
	}
	a = again()
	must(t, a.desired.followEpoch(2))
	if n := len(a.journal.Pending(10)); n != 1 {
		t.Errorf("%d segments are offered again, want 1", n)
	}
}

// If a run's end is in the journal but not in its record, the agent reports the end that the journal has.
func TestTheEndIsToldTheSameTwice(t *testing.T) {
	t.Parallel()
	a, again, ref := crashing(t)
	v := view{boot: "b1", rec: record{BootID: "b1", Started: true}}
	v.work.FinishedAt = a.cfg.Now().Add(-5 * time.Second) // boot 4,000
	must(t, a.journal.SetAnchor(agentapi.Anchor{
		BootID:   "b1",
		Number:   1,
		ServerMS: 1_000_000,
	}), a.journal.Start(ref, 1000, nil))
	before, open := a.metering.lastSign(a.runs.find(ref), v)
	if before != 4000 || !open {
		t.Fatalf("it ended at %d, open %v", before, open)
	}
	must(t, a.journal.End(ref, before))
	for _, what := range []string{"ended", "acknowledged"} {
		a = again()
		if at, open := a.metering.lastSign(a.runs.find(ref), v); at != before || open {
			t.Errorf("%s: it ended at %d, open %v; before at %d", what, at, open, before)
		}
		must(t, a.journal.Ack([]agentapi.UsageAck{{LeaseRef: ref, BootID: "b1", Through: 1}}))
	}
}

// The time until which a run is paid for is stored, whichever part of a reply states it first: without a server, the
// next agent stops the run then, and not earlier.
func TestTheAuthorisedEndOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	a, again, ref := crashing(t)
	reply := agentapi.SyncReply{
		ControlEpoch: 1,
		Revision:     2,
		Desired: &agentapi.Desired{ControlEpoch: 1, Revision: 2,
			Leases: []agentapi.LeaseSpec{{LeaseRef: ref, RunUntilMS: 5_000}}},
		Extensions: []agentapi.LeaseExtension{{LeaseRef: ref, RunUntilMS: 5_000}},
	}
	must(t, a.take(agentapi.Sync{}, nil, reply))
	if until := again().runs.find(ref).rec.RunUntilMS; until != 5_000 {
		t.Errorf("it may run until %d", until)
	}
}

// An agent that was restarted takes no way out from a run that it has not come to yet.
func TestTheFirewallRemembersGuests(t *testing.T) {
	t.Parallel()
	a, again, _ := crashing(t)
	addr := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 200, 0, n}) }
	for _, rec := range []record{
		{BootID: "b1", GuestIP: addr(2), Spec: agentapi.LeaseSpec{Egress: "full"}},
		{BootID: "b1", GuestIP: addr(3), Spec: agentapi.LeaseSpec{Egress: "limited"}},
		{BootID: "b0", GuestIP: addr(4), Spec: agentapi.LeaseSpec{Egress: "full"}},
		{BootID: "b1", GuestIP: addr(5), Spec: agentapi.LeaseSpec{Egress: "full"}, Down: true},
		{BootID: "b1", Spec: agentapi.LeaseSpec{Egress: "full"}},
	} {
		rec.Spec.LeaseRef = agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
		must(t, a.disk.save(rec.Spec.LeaseRef, rec))
	}
	want := map[netip.Addr]firewall.Egress{addr(2): firewall.EgressFull, addr(3): firewall.EgressLimited}
	if got := again().network.egresses(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
