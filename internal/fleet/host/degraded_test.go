package host_test

import (
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// A degraded GPU keeps its health, is degraded since the first event that said so, and until one says that it no longer
// is.
func TestDegradedGPUs(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	a := fleettest.NewAgent(t)
	inv := fleettest.Inventory(1)
	h, err := enroll(t, d, fleettest.Policy, a.Request(t, fleettest.Origin, fleettest.Token(t, d, org, user, ""), inv))
	if err != nil {
		t.Fatal(err)
	}
	record := func(seq uint64, kind, state, detail string, bootMS int64) host.GPU {
		t.Helper()
		s := agentapi.Sync{BootID: "boot", BootMS: 600_000, Health: []agentapi.HealthEvent{{
			Seq: seq, GPU: inv.GPUs[0].UUID, Kind: kind, State: state, Detail: detail, BootID: "boot", BootMS: bootMS,
		}}}
		if _, err := host.NewAgents(d, nil).RecordHealth(t.Context(), h.ID, s); err != nil {
			t.Fatal(err)
		}
		got, err := host.New(d, nil).Get(t.Context(), account.Principal{Org: org}, h.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got.GPUs[0]
	}
	expect := func(g host.GPU, health, reason, degraded string) {
		t.Helper()
		if g.Health != health || g.HealthReason != reason || g.Degraded != degraded ||
			g.DegradedSince.IsZero() != (degraded == "") {
			t.Errorf("%s (%s), degraded %q since %v; want %s (%s), %q", g.Health, g.HealthReason, g.Degraded, g.DegradedSince,
				health, reason, degraded)
		}
	}
	first := record(1, "degraded", host.Healthy, "HW power\nbrake", 100_000)
	expect(first, host.Healthy, "", "HW power brake")
	suspect := record(2, "xid", host.Suspect, "Xid 63", 200_000)
	expect(suspect, host.Suspect, "xid: Xid 63", "HW power brake")
	second := record(3, "degraded", host.Suspect, "HW power brake, NVLink errors rise", 500_000)
	expect(second, host.Suspect, "xid: Xid 63", "HW power brake, NVLink errors rise")
	if since := second.DegradedSince.Sub(first.DegradedSince).Abs(); since.Minutes() > 1 {
		t.Errorf("a second cause moved the beginning by %v", since)
	}
	expect(record(4, "restored", host.Suspect, "", 550_000), host.Suspect, "xid: Xid 63", "")
	again := record(5, "degraded", host.Suspect, "HW slowdown", 590_000)
	expect(again, host.Suspect, "xid: Xid 63", "HW slowdown")
	if since := again.DegradedSince.Sub(first.DegradedSince); since.Minutes() < 5 {
		t.Errorf("degraded again since %v", again.DegradedSince)
	}
}
