package host_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// An operator's request to reset a GPU reaches its host until the host has reported the result, once each, and is
// refused for GPUs that are healthy, in use, of an agent that does not know it, or another operator's.
func TestRequalify(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	a := fleettest.NewAgent(t)
	inv := fleettest.Inventory(2)
	h, err := enroll(t, d, fleettest.Policy, a.Request(t, fleettest.Origin, fleettest.Token(t, d, org, user, ""), inv))
	if err != nil {
		t.Fatal(err)
	}
	hosts, agents := host.New(d, nil), host.NewAgents(d, nil)
	who := account.Principal{Org: org, User: user}
	gpu := inv.GPUs[1].UUID
	act := func(by account.Principal, gpu string) error {
		_, _, err := hosts.Act(t.Context(), by, h.ID, host.Action{Name: host.Requalify, GPU: gpu}, idem.Request{})
		return err
	}
	refused := func(what string, err error, kind fault.Kind) {
		t.Helper()
		if !fault.Is(err, kind) {
			t.Errorf("%s: %v", what, err)
		}
	}
	waiting := func() (orders []agentapi.GPUOrder) {
		t.Helper()
		b := &pgx.Batch{}
		host.QueueRequalifies(b, h.ID, &orders)
		if err := db.Send(t.Context(), d.Q, b); err != nil {
			t.Fatal(err)
		}
		return orders
	}
	shown := func() string {
		t.Helper()
		got, err := hosts.Get(t.Context(), who, h.ID)
		if err != nil {
			t.Fatal(err)
		}
		r, ok := got.Requalify[got.GPUs[1].ID]
		if !ok {
			return ""
		}
		return r.String()
	}
	finish := func(number int64, failure string) {
		t.Helper()
		results := []agentapi.GPUResult{{GPUOrder: agentapi.GPUOrder{GPU: gpu, Number: number}, Error: failure}}
		if err := agents.RecordRequalified(t.Context(), h.ID, results); err != nil {
			t.Fatal(err)
		}
	}

	refused("an old agent", act(who, gpu), fault.Conflict)
	report := agentapi.Sync{Capabilities: []string{agentapi.CapRequalify}}
	if _, err := agents.UpdateOrder(t.Context(), h.ID, report); err != nil {
		t.Fatal(err)
	}
	refused("a healthy GPU", act(who, gpu), fault.Conflict)
	sick := agentapi.Sync{BootID: "boot", Health: []agentapi.HealthEvent{{Seq: 1, GPU: gpu, Kind: "recovery_action",
		State: host.Quarantined, BootID: "boot"}}}
	if _, err := agents.RecordHealth(t.Context(), h.ID, sick); err != nil {
		t.Fatal(err)
	}
	refused("no such GPU", act(who, "GPU-none"), fault.Invalid)
	refused("no GPU", act(who, ""), fault.Invalid)
	other, _ := fleettest.Org(t, d)
	refused("another operator", act(account.Principal{Org: other}, gpu), fault.NotFound)
	before, err := host.Read(t.Context(), d.Q, h.ID)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a request that waits is not repeated
		if err := act(who, gpu); err != nil {
			t.Fatal(err)
		}
	}
	after, err := host.Read(t.Context(), d.Q, h.ID)
	if err != nil || after.Revision <= before.Revision {
		t.Errorf("the host is not woken: revision %d after %d, %v", after.Revision, before.Revision, err)
	}
	if got := waiting(); len(got) != 1 || got[0] != (agentapi.GPUOrder{GPU: gpu, Number: 1}) {
		t.Fatalf("waiting: %v", got)
	}
	if s := shown(); !strings.HasPrefix(s, "reset and check requested at ") {
		t.Errorf("%q", s)
	}
	finish(2, "") // never requested
	if len(waiting()) != 1 {
		t.Error("a result of another request ended this one")
	}
	finish(1, "it is in use by another\nclient")
	finish(1, "") // late
	if s := shown(); len(waiting()) != 0 || !strings.HasSuffix(s, ": it is in use by another client") {
		t.Errorf("%q, waiting %v", s, waiting())
	}
	if err := act(who, gpu); err != nil {
		t.Fatal(err)
	}
	finish(2, "")
	if s := shown(); len(waiting()) != 0 || !strings.HasPrefix(s, "reset and checked at ") {
		t.Errorf("%q", s)
	}
}
