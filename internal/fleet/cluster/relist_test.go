package cluster_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/fleettest"
	"github.com/musterhq/muster/internal/testing/fleettest/markettest"
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
		"nothing":       {do: func(*world, *fakeHost) {}},
		"pause, resume": {do: func(w *world, h *fakeHost) { w.act(h, host.Drain, host.Resume) }},
		"price, relist": {do: func(w *world, h *fakeHost) {
			markettest.Price(w.World, w.market, w.operator, h.id, 2*price)
		}},
		"one GPU less":   {do: func(w *world, h *fakeHost) { w.reports(h, inventory(0, gpus-1)) }},
		"other boot id":  {do: func(w *world, h *fakeHost) { w.reports(h, withBoot(inventory(0, gpus), "boot-x")) }},
		"enrolled again": {do: func(w *world, h *fakeHost) { w.act(h, host.Retire); w.addHost(0, gpus) }},
		"enrolled again with other UUIDs": {do: func(w *world, h *fakeHost) {
			w.act(h, host.Retire)
			w.addHostOf(w.operator, 1, renamed(inventory(1, gpus)))
		}},
		"vanished, and enrolled again with other UUIDs": {do: func(w *world, h *fakeHost) {
			w.exec("UPDATE host SET ephemeral = true")
			w.exec("UPDATE host_status SET last_sync_at = now() - interval '25 hours'")
			if n, err := host.New(w.d, nil).RetireVanished(w.ctx); err != nil || n != 1 {
				w.t.Fatalf("%d hosts have vanished, %v", n, err)
			}
			w.addHostOf(w.operator, 1, renamed(withBoot(inventory(1, gpus), "boot-x")))
		}},
		"stopped, and started with other UUIDs": {do: func(w *world, h *fakeHost) {
			w.exec("UPDATE host SET ephemeral = true")
			w.reports(h, renamed(withBoot(inventory(0, gpus), "boot-x")))
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
	w.tx(func(ctx context.Context, tx *db.Tx) error { return fleettest.RecordInventory(ctx, tx, h.id, inv) })
}

func withBoot(inv agentapi.Inventory, boot string) agentapi.Inventory {
	inv.BootID = boot
	return inv
}

// offered counts the GPUs that a renter can get now, as a server that starts now sees the market.
func (w *world) offered() int {
	w.t.Helper()
	m := markettest.New(w.World, market.Config{RelistLock: fairness.RelistLock})
	page, err := m.SearchOffers(w.ctx, market.OfferSearch{})
	w.must(err)
	return page.GPUsFree
}

// enrolledAgain are ways to enrol a machine again, and whether what counted against it still does. other is what it is
// then.
var enrolledAgain = map[string]struct {
	again   func(w *world, h *fakeHost) (other *fakeHost)
	follows bool
}{
	"as before": {func(w *world, h *fakeHost) *fakeHost {
		w.act(h, host.Retire)
		w.addHost(0, 1)
		return w.hosts[len(w.hosts)-1]
	}, true},
	"with other UUIDs": {func(w *world, h *fakeHost) *fakeHost {
		w.act(h, host.Retire)
		return w.addHostOf(w.operator, 7, renamed(withBoot(inventory(0, 1), "boot-x")))
	}, true},
	"with other UUIDs and models, in the same boot": {func(w *world, h *fakeHost) *fakeHost {
		w.act(h, host.Retire)
		return w.addHostOf(w.operator, 7, otherModel(inventory(0, 1)))
	}, true},
	"twice": {func(w *world, h *fakeHost) *fakeHost {
		w.act(h, host.Retire)
		between := w.addHostOf(w.operator, 7, renamed(withBoot(inventory(0, 1), "boot-x")))
		w.act(between, host.Retire)
		return w.addHostOf(w.operator, 8, renamed(renamed(withBoot(inventory(0, 1), "boot-y"))))
	}, true},
	"by who bought it": {func(w *world, h *fakeHost) *fakeHost {
		w.act(h, host.Retire)
		return w.addHostOf(w.SignUp("buyer"), 7, inventory(0, 1))
	}, false},
	"not, but another one of its operator is new": {func(w *world, _ *fakeHost) *fakeHost {
		return w.addHostOf(w.operator, 7, inventory(7, 1))
	}, false},
}

// Strikes follow a machine that is enrolled again: a host that failed in three gangs is in no other under a new name.
func TestAGangBanFollowsAHostThatIsEnrolledAgain(t *testing.T) {
	t.Parallel()
	for name, c := range enrolledAgain {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
			for range 2 {
				w.strike(w.hosts[0], "start")
			}
			again := c.again(w, w.hosts[0])
			if w.gangBanned(again) {
				t.Fatal("banned after two strikes")
			}
			w.strike(again, "start")
			if got := w.gangBanned(again); got != c.follows {
				t.Errorf("banned %t after two strikes before it was enrolled again and one after, want %t", got, c.follows)
			}
		})
	}
}

// gangBanned reports whether three strikes count against a host.
func (w *world) gangBanned(h *fakeHost) bool {
	w.t.Helper()
	rows, err := w.d.Q.BondGangStrikes(w.ctx)
	w.must(err)
	n := 0
	for _, r := range rows {
		if r.HostID.Bytes == h.id.UUID() {
			n++
		}
	}
	return n == 3
}

// A renter and a host whose gang ended undecided are kept apart for a day, also if the host is older than the renter's
// organisation, and under whatever name the host is enrolled then.
func TestAPairBanFollowsAHostThatIsEnrolledAgain(t *testing.T) {
	t.Parallel()
	for name, c := range enrolledAgain {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
			later := w.SignUp("later")
			w.Fund(later.Org, 100*money.Unit)
			w.addHostOf(w.operator, 9, inventory(9, 1))
			banned := func(by account.Principal) bool {
				t.Helper()
				m := markettest.New(w.World, market.Config{})
				q, _, err := m.Quote(w.ctx, by, spec(2, 1), idem.Request{})
				if err == nil {
					_, err = m.ReturnQuote(w.ctx, by, q.ID)
					w.must(err)
					return false
				}
				f := fault.From(err)
				if f == nil || f.Kind != fault.NoCapacity {
					t.Fatal(err)
				}
				for _, e := range f.Extra["explain"].([]client.Exclusion) {
					if strings.HasPrefix(e.Constraint, "pair ban") && e.Excluded > 0 {
						return true
					}
				}
				return false
			}
			if banned(later) {
				t.Fatal("banned at first")
			}
			for _, by := range []account.Principal{w.renter, later} {
				w.must(w.d.Q.BanPair(w.ctx, pgtype.UUID{Bytes: by.Org.UUID(), Valid: true},
					pgtype.UUID{Bytes: w.hosts[0].id.UUID(), Valid: true}, time.Now().Add(fairness.PairBan)))
			}
			if !banned(w.renter) || !banned(later) {
				t.Error("not banned on the host itself")
			}
			c.again(w, w.hosts[0])
			if name == "not, but another one of its operator is new" {
				w.act(w.hosts[0], host.Drain)
			}
			if got := banned(later); got != c.follows {
				t.Errorf("banned %t, want %t", got, c.follows)
			}
		})
	}
}
