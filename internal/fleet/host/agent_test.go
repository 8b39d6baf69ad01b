package host_test

import (
	"context"
	"slices"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// fleet is hosts of one org whose agents report.
type fleet struct {
	t     *testing.T
	d     *db.DB
	org   id.Org
	admin account.Principal
	hosts []id.Host
}

func newFleet(t *testing.T, n int) *fleet {
	t.Helper()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	f := &fleet{t: t, d: d, org: org, admin: account.Principal{Org: org, User: user, Admin: true}}
	for range n {
		f.hosts = append(f.hosts, fleettest.Enroll(t, d, org, user, 1).Host)
	}
	return f
}

func (f *fleet) set(version string, percent int) client.AgentChannel {
	f.t.Helper()
	c, err := host.New(f.d, nil).SetChannel(f.t.Context(), f.admin, host.NewChannel{
		Name:    "stable",
		Version: version,
		Source:  "https://releases.example/" + version,
		Percent: percent,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// report returns the update order of host i when it runs a version and reports how the update to another one went.
func (f *fleet) report(i int, runs string, u *agentapi.UpdateStatus) *agentapi.UpdateOrder {
	f.t.Helper()
	o, err := host.NewAgents(f.d, nil).UpdateOrder(f.t.Context(), f.hosts[i], agentapi.Sync{
		AgentVersion: runs,
		Capabilities: agentapi.Capabilities(),
		Update:       u,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}

func TestAChannelTellsItsHosts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	if o := f.report(0, "v1.0.0", nil); o != nil {
		t.Errorf("without a channel: %+v", o)
	}
	f.set("v1.1.0", 100)
	if o := f.report(0, "v1.0.0", nil); o == nil || *o != (agentapi.UpdateOrder{
		Version: "v1.1.0",
		Source:  "https://releases.example/v1.1.0",
		Try:     1,
	}) {
		t.Errorf("%+v", o)
	}
	o, err := host.NewAgents(f.d, nil).UpdateOrder(t.Context(), f.hosts[1], agentapi.Sync{AgentVersion: "v0.1.0"})
	if o != nil || err != nil {
		t.Errorf("an agent that says nothing of updates is told of one: %+v %v", o, err)
	}
	if o := f.report(0, "v1.1.0", &agentapi.UpdateStatus{
		State:   agentapi.UpdateDone,
		Version: "v1.1.0",
		Try:     1,
	}); o != nil {
		t.Errorf("it runs it: %+v", o)
	}
	if o := f.report(0, "v1.0.0", &agentapi.UpdateStatus{State: agentapi.UpdateUnmanaged}); o != nil {
		t.Errorf("it cannot: %+v", o)
	}
	f.set("v1.1.0", 0)
	if o := f.report(1, "v1.0.0", nil); o != nil {
		t.Errorf("none of the hosts, and yet: %+v", o)
	}
	follow := func(channel string) error {
		return f.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return host.Change{Channel: &channel}.Apply(ctx, tx, nil, account.Principal{Org: f.org}, f.hosts[1])
		})
	}
	f.set("v1.1.0", 100)
	if err := follow("nosuch"); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
	if err := follow(host.OffChannel); err != nil {
		t.Fatal(err)
	}
	if o := f.report(1, "v1.0.0", nil); o != nil {
		t.Errorf("its operator updates by hand: %+v", o)
	}
	h, err := host.New(f.d, nil).Get(t.Context(), account.Principal{Org: f.org}, f.hosts[1])
	if err != nil {
		t.Fatal(err)
	}
	if a, err := host.New(f.d, nil).Agent(t.Context(), h.Host); err != nil || a.Channel != host.OffChannel ||
		!slices.Contains(a.Capabilities, agentapi.CapRelayRenewal) {
		t.Errorf("%+v %v", a, err)
	}
}

// The roll-out of a version that fails stops by itself. When the version is set again, hosts that gave it up get the
// order again.
func TestAVersionThatFailsStops(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.set("v1.1.0", 100)
	f.report(0, "v1.1.0", &agentapi.UpdateStatus{State: agentapi.UpdateDone, Version: "v1.1.0", Try: 1})
	back := &agentapi.UpdateStatus{State: agentapi.UpdateRolledBack, Version: "v1.1.0", Try: 1, Detail: "it ended 3 times"}
	if o := f.report(1, "v1.0.0", back); o != nil {
		t.Errorf("a host that gave it up is told again: %+v", o)
	}
	if o := f.report(2, "v1.0.0", nil); o == nil {
		t.Error("one failed, one did not: it goes on")
	}
	f.report(2, "v1.0.0", back)
	f.report(2, "v1.0.0", back) // reports come twice
	channels, hosts, err := host.New(f.d, nil).Channels(t.Context(), f.admin)
	if err != nil || len(channels) != 1 || channels[0].Stopped == "" || len(hosts) != 2 {
		t.Fatalf("%+v %+v %v", channels, hosts, err)
	}
	if c := f.set("v1.1.0", 100); c.Try != 2 || c.Stopped != "" {
		t.Errorf("%+v", c)
	}
	if o := f.report(1, "v1.0.0", back); o == nil || o.Try != 2 {
		t.Errorf("set again: %+v", o)
	}
	if c := f.set("v1.1.0", 50); c.Try != 2 {
		t.Errorf("another share is no other try: %+v", c)
	}
	if _, _, err := host.New(f.d, nil).Channels(t.Context(), account.Principal{Org: f.org}); !fault.Is(err,
		fault.Forbidden) {
		t.Errorf("%v", err)
	}
}

func TestWhatAChannelRefuses(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 0)
	for _, n := range []host.NewChannel{
		{
			Name:    "off",
			Version: "v1.0.0",
			Source:  "https://x.example",
			Percent: 1,
		}, {Name: "stable", Version: "dev", Source: "https://x.example", Percent: 1},
		{
			Name:    "stable",
			Version: "v1.0.0",
			Source:  "http://x.example",
			Percent: 1,
		}, {Name: "stable", Version: "v1.0.0", Source: "https://x.example", Percent: 101},
	} {
		if _, err := host.New(f.d, nil).SetChannel(t.Context(), f.admin, n); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", n, err)
		}
	}
	_, err := host.New(f.d, nil).SetChannel(t.Context(), account.Principal{Org: f.org}, host.NewChannel{
		Name:    "stable",
		Version: "v1.0.0",
		Source:  "https://x.example",
	})
	if !fault.Is(err, fault.Forbidden) {
		t.Errorf("%v", err)
	}
}
