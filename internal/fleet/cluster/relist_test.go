package cluster_test

import (
	"context"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// act does something with a host as its operator would.
func (w *world) act(h *fakeHost, names ...string) {
	w.t.Helper()
	for _, name := range names {
		_, _, err := host.New(w.d, nil).Act(w.ctx, w.operator, h.id, host.Action{Name: name}, idem.Request{})
		w.must(err)
	}
}

// renamed returns an inventory whose GPUs have other UUIDs, as a host may claim of the same ones.
func renamed(inv agentapi.Inventory) agentapi.Inventory {
	for i := range inv.GPUs {
		inv.GPUs[i].UUID += "-b"
	}
	return inv
}

// otherModel returns an inventory with GPUs of another model and other UUIDs.
func otherModel(inv agentapi.Inventory) agentapi.Inventory {
	inv = renamed(inv)
	for i := range inv.GPUs {
		inv.GPUs[i].Model = "NVIDIA A100-SXM4-80GB"
	}
	return inv
}

// A host by whose fault a run ended stays out of the market for the lock, whatever its operator does with it. Others
// that have nothing to do with it stay in.
func TestAHostDoesNotEscapeItsRelistLock(t *testing.T) {
	t.Parallel()
	const gpus = 2
	for name, c := range map[string]struct {
		do      func(w *world, failed *fakeHost)
		offered int // GPUs, afterwards
	}{
		"nothing":        {do: func(*world, *fakeHost) {}},
		"pause, resume":  {do: func(w *world, h *fakeHost) { w.act(h, host.Drain, host.Resume) }},
		"price, relist":  {do: func(w *world, h *fakeHost) { w.Price(w.market, w.operator, h.id, 2*price) }},
		"one GPU less":   {do: func(w *world, h *fakeHost) { w.reports(h, inventory(0, gpus-1)) }},
		"other boot id":  {do: func(w *world, h *fakeHost) { w.reports(h, withBoot(inventory(0, gpus), "boot-x")) }},
		"enrolled again": {do: func(w *world, h *fakeHost) { w.act(h, host.Retire); w.addHost(0, gpus) }},
		"enrolled again with other UUIDs": {do: func(w *world, h *fakeHost) {
			w.act(h, host.Retire)
			w.addHostOf(w.operator, 1, renamed(inventory(1, gpus)))
		}},
		"enrolled again as two": {do: func(w *world, h *fakeHost) {
			w.act(h, host.Retire)
			w.addHostOf(w.operator, 1, renamed(inventory(1, 1)))
			w.addHostOf(w.operator, 2, renamed(inventory(2, 1)))
		}},
		"a part of it as another host": {do: func(w *world, h *fakeHost) {
			w.reports(h, inventory(0, 1))
			w.addHostOf(w.operator, 1, renamed(inventory(1, 1)))
		}},
		"enrolled again by another organisation": {do: func(w *world, h *fakeHost) {
			w.act(h, host.Retire)
			w.addHostOf(w.SignUp("sister"), 1, inventory(0, gpus))
		}},
		"a host of the same operator, with the failed one kept": {
			do:      func(w *world, _ *fakeHost) { w.addHost(1, gpus) },
			offered: gpus,
		},
		"another model in its place": {
			do: func(w *world, h *fakeHost) {
				w.act(h, host.Retire)
				w.addHostOf(w.operator, 1, otherModel(inventory(1, gpus)))
			},
			offered: gpus,
		},
		"a stranger's host": {
			do: func(w *world, h *fakeHost) {
				w.act(h, host.Retire)
				w.addHostOf(w.SignUp("stranger"), 1, inventory(1, gpus))
			},
			offered: gpus,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldConfig{hosts: 1, gpus: gpus, relist: fairness.RelistLock})
			failed := w.hosts[0]
			w.strike(failed, "loss")
			c.do(w, failed)
			if n := w.offered(); n != c.offered {
				t.Errorf("%d GPUs are offered, want %d", n, c.offered)
			}
			w.exec("UPDATE gang_strike SET at = at - interval '1 hour'")
			if n := w.offered(); n == 0 {
				t.Error("nothing is offered after the lock")
			}
		})
	}
}

// strike counts a failure against a host, in a cluster of its own.
func (w *world) strike(h *fakeHost, kind string) {
	w.t.Helper()
	c, _ := fleettest.Lease(w.t, w.d, h.id, w.renter.Org)
	w.exec("INSERT INTO gang_strike (host_id, cluster_id, kind, at) VALUES ($1, $2, $3, clock_timestamp())", h.id, c, kind)
}

// reports records another inventory of a host.
func (w *world) reports(h *fakeHost, inv agentapi.Inventory) {
	w.t.Helper()
	w.tx(func(ctx context.Context, tx *db.Tx) error { return host.RecordInventory(ctx, tx, h.id, inv) })
}

func withBoot(inv agentapi.Inventory, boot string) agentapi.Inventory {
	inv.BootID = boot
	return inv
}

// offered counts the GPUs that a renter can get now, as a server that starts now sees the market.
func (w *world) offered() int {
	w.t.Helper()
	page, err := w.Market(market.Config{RelistLock: fairness.RelistLock}).SearchOffers(w.ctx, market.OfferSearch{})
	w.must(err)
	return page.GPUsFree
}

// Strikes follow a machine that is enrolled again: a host that failed in three gangs is in no other under a new name.
func TestAGangBanFollowsAHostThatIsEnrolledAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	for range 2 {
		w.strike(w.hosts[0], "start")
	}
	w.act(w.hosts[0], host.Retire)
	w.addHost(0, 1)
	again := w.hosts[1]
	banned := func() bool {
		t.Helper()
		rows, err := w.d.Q.BondGangStrikes(w.ctx)
		w.must(err)
		n := 0
		for _, r := range rows {
			if r.HostID == again.id {
				n++
			}
		}
		return n == 3
	}
	if banned() {
		t.Fatal("banned after two strikes")
	}
	w.strike(again, "start")
	if !banned() {
		t.Error("the strikes of before it was enrolled again do not count")
	}
	w.act(again, host.Retire)
	stranger := w.addHostOf(w.SignUp("stranger"), 1, inventory(0, 1))
	rows, err := w.d.Q.BondGangStrikes(w.ctx)
	w.must(err)
	for _, r := range rows {
		if r.HostID == stranger.id {
			t.Error("strikes count against another organisation, which perhaps bought the machine")
		}
	}
}
