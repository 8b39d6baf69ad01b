package cluster_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/testing/billingtest"
)

func TestARentNeedsAMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1, funds: money.CostOf(price, 59_000)})
	_, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: spec(1, 1)}, idem.Request{})
	if !fault.Is(err, fault.InsufficientFunds) {
		t.Fatalf("rented with 59 s of money: %v", err)
	}
	w.noClaims()
	s := spec(1, 1)
	small := money.CostOf(price, 30_000)
	s.Budget = &small
	w.Fund(w.renter.Org, 100*money.Unit)
	if _, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s},
		idem.Request{}); !fault.Is(err, fault.Invalid) {
		t.Fatalf("rented with a budget of 30 s: %v", err)
	}
	w.noClaims()
	w.ledger()
}

// TestMoneyEndsAClusterInOrder: funds, budget and duration each end it at run_until, with their own reason.
func TestMoneyEndsAClusterInOrder(t *testing.T) {
	t.Parallel()
	minute := money.CostOf(price, 70_000)
	duration := int64(60)
	for _, tc := range []struct {
		reason lifecycle.Reason
		cause  client.StopCause
		funds  money.Nano
		set    func(*market.Spec)
		left   []string // notices after the end
	}{
		{lifecycle.ReasonFundsExhausted, client.StopFunds, minute, func(*market.Spec) {}, []string{"stopped"}},
		{lifecycle.ReasonBudgetExhausted, client.StopBudget, 100 * money.Unit,
			func(s *market.Spec) { s.Budget = &minute }, []string{"stopped"}},
		{lifecycle.ReasonMaxDuration, client.StopDuration, 100 * money.Unit,
			func(s *market.Spec) { s.MaxDuration = &duration }, nil},
	} {
		t.Run(string(tc.reason), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldConfig{hosts: 1, gpus: 1, funds: tc.funds})
			s := spec(1, 1)
			s.DiskGB = 1
			tc.set(&s)
			c := w.runUp(s)
			w.tick(c)
			c = w.get(c)
			if left := c.RunUntil.Sub(*c.RunningAt); left > 71*time.Second {
				t.Fatalf("paid for %s ahead", left)
			}
			if c.StopsBecause != tc.cause || c.StopsAt == nil || c.StopsAt.Sub(*c.RunUntil).Abs() > time.Second {
				t.Errorf("stops at %v because %q, run_until is %s", c.StopsAt, c.StopsBecause, c.RunUntil)
			}
			listed, err := w.clusters[0].Views.List(w.ctx, w.renter.Org, cluster.ListRequest{Limit: 10})
			if w.must(err); len(listed) != 1 || listed[0].StopsBecause != tc.cause {
				t.Errorf("listed as stopping because %+v", listed)
			}
			notices, err := notify.List(w.ctx, w.d.Q, w.renter.Org, notify.Filter{Limit: 10})
			w.must(err)
			notices = slices.DeleteFunc(notices, func(n notify.Delivered) bool { return !strings.HasPrefix(n.Key, "runway:") })
			if len(notices) != 1 || notices[0].Severity != notify.Bad || !strings.Contains(notices[0].Body, tc.cause.Why()) {
				t.Errorf("notified %+v, want one notice of ten minutes", notices)
			}
			w.age(c, 2*time.Minute) // the time comes: hosts have stopped by themselves
			w.tick(c)
			c = w.get(c)
			if c.State != lifecycle.Releasing || c.Reason != tc.reason {
				t.Fatalf("%s with %q: %s", c.State, c.Reason, c.Detail)
			}
			if c.StopsAt != nil || c.StopsBecause != "" {
				t.Errorf("has ended, and stops at %s because %q", c.StopsAt, c.StopsBecause)
			}
			var left []string
			about, err := notify.List(w.ctx, w.d.Q, w.renter.Org, notify.Filter{Limit: 10})
			w.must(err)
			for _, n := range about {
				if kind, _, _ := strings.Cut(n.Key, ":"); n.Object == c.ID.String() {
					left = append(left, kind)
				}
			}
			if diff := cmp.Diff(tc.left, left); diff != "" {
				t.Errorf("notices about the ended cluster (-want +got):\n%s", diff)
			}
			w.rounds(c, "released", in(lifecycle.Released))
			c = w.clean(c)
			if tc.funds-w.wallet() < c.CostSoFar {
				t.Errorf("cost %s, the wallet fell by %s", c.CostSoFar, tc.funds-w.wallet())
			}
		})
	}
}

// age lets a cluster have run for that long already. Its hosts must not have reported segments yet.
func (w *world) age(c cluster.Cluster, by time.Duration) {
	w.t.Helper()
	ms := by.Milliseconds()
	w.exec(`UPDATE lease SET created_at = created_at - $2::bigint * interval '1 ms', run_until = run_until - $2::bigint *
		interval '1 ms',
		covered_from_ms = covered_from_ms - $2 WHERE cluster_id = $1`, c.ID, ms)
	w.exec("UPDATE lease_meter SET settled_through_ms = settled_through_ms - $2 WHERE lease_id IN (SELECT id FROM "+
		"lease WHERE cluster_id = $1)", c.ID, ms)
	w.exec("UPDATE cluster_window SET opened_ms = opened_ms - $2, confirmed_until_ms = confirmed_until_ms - $2 WHERE "+
		"cluster_id = $1", c.ID, ms)
	w.exec(`UPDATE cluster SET running_at = running_at - $2::bigint * interval '1 ms', run_until = run_until - $2::bigint
		* interval '1 ms'
		WHERE id = $1`, c.ID, ms)
	for _, h := range w.hosts {
		for ref, r := range h.runs {
			var of id.Cluster
			w.must(w.d.Pool.QueryRow(w.ctx, "SELECT cluster_id FROM lease WHERE id = $1", leaseOf(w.t, ref)).Scan(&of))
			if of != c.ID {
				continue
			}
			r.endMS -= ms
			h.until[ref] -= ms
		}
	}
}

// TestARentAnswersWhatIsThere: the answer is made without reading back, and is what a read shows.
func TestARentAnswersWhatIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 3, gpus: 4})
	s := spec(2, 3)
	s.Name, s.Labels, s.Env = "train", map[string]string{"team": "a"}, map[string]string{"SECRET": "x"}
	got, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s}, idem.Request{})
	w.must(err)
	want, err := w.clusters[0].Views.Get(w.ctx, w.renter.Org, got.ID)
	w.must(err)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(id.Cluster{}, id.Node{}, id.Host{}, id.Org{})); diff != "" {
		t.Errorf("answered otherwise (-read +answered):\n%s", diff)
	}
}

func TestTheSameKeyRentsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1, replicas: 2})
	key := idem.Request{Principal: "p", Method: "POST", Path: "/clusters", Key: "k", BodyHMAC: []byte("b")}
	type answer struct {
		c   cluster.Cluster
		err error
	}
	got := make(chan answer)
	for i := range 2 {
		go func() {
			c, _, err := w.clusters[i].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: spec(1, 1)}, key)
			got <- answer{c, err}
		}()
	}
	a, b := <-got, <-got
	w.must(a.err)
	w.must(b.err)
	if diff := cmp.Diff(a.c, b.c, cmp.AllowUnexported(id.Cluster{}, id.Node{}, id.Host{}, id.Org{}),
		cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Org" }, cmp.Ignore())); diff != "" {
		t.Errorf("two answers: %s", diff)
	}
	other := key
	other.BodyHMAC = []byte("c")
	if _, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: spec(1, 1)},
		other); !fault.Is(err, fault.IdemMismatch) {
		t.Errorf("same key, other body: %v", err)
	}
}

func TestAQuoteBecomesACluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 2})
	q := w.quote(spec(2, 2))
	if _, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{
		Quote: q.ID,
		Over:  []byte(`{"nodes":1}`),
	}, idem.Request{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a quote was rented with other nodes: %v", err)
	}
	stranger := w.SignUp("stranger")
	if _, _, err := w.clusters[0].Rentals.Rent(w.ctx, stranger, cluster.RentRequest{Quote: q.ID},
		idem.Request{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a stranger's quote: %v", err)
	}
	c, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{
		Quote: q.ID,
		Over:  []byte(`{"command":["sleep","1"]}`),
	}, idem.Request{})
	w.must(err)
	if c.PricePerHour != q.Placement.Rate || c.Nodes[0].HostID != q.Placement.Nodes[0].Host ||
		c.Spec.Command[0] != "sleep" {
		t.Errorf("rented %+v of quote %+v", c, q)
	}
	if _, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Quote: q.ID},
		idem.Request{}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a quote was rented twice: %v", err)
	}
	w.rounds(c, "running", in(lifecycle.Running))
	w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
	w.rounds(c, "released", in(lifecycle.Released))
	w.clean(c)
}

func TestStrangersSeeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	c := w.rent(spec(1, 1))
	stranger := w.SignUp("stranger")
	for name, err := range map[string]error{
		"get":     errOf(w.clusters[0].Views.Get(w.ctx, stranger.Org, c.ID)),
		"release": errOf(w.clusters[0].Rentals.Release(w.ctx, stranger, c.ID)),
		"restart": errOf(w.clusters[0].Rentals.Restart(w.ctx, stranger, c.ID)),
		"missing": errOf(w.clusters[0].Views.Get(w.ctx, w.renter.Org, id.New[id.Cluster]())),
		"events":  func() error { _, err := w.clusters[0].Views.Events(w.ctx, stranger.Org, c.ID, 0, 10); return err }(),
		"log":     func() error { _, err := w.clusters[0].Views.Log(w.ctx, stranger.Org, c.ID, 0); return err }(),
	} {
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	list, err := w.clusters[0].Views.List(w.ctx, stranger.Org, cluster.ListRequest{Limit: 10})
	w.must(err)
	if len(list) != 0 {
		t.Errorf("a stranger lists %d clusters", len(list))
	}
	if list, err = w.clusters[0].Views.List(w.ctx, w.renter.Org, cluster.ListRequest{Limit: 10}); err != nil ||
		len(list) != 1 {
		t.Errorf("the renter lists %d, %v", len(list), err)
	}
	if list, err = w.clusters[0].Views.List(w.ctx, w.renter.Org, cluster.ListRequest{
		After: c.ID,
		Limit: 10,
	}); err != nil || len(list) != 0 {
		t.Errorf("after the last: %d, %v", len(list), err)
	}
}

func TestNothingFitsIsSaidWithReasons(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	_, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: spec(2, 8)}, idem.Request{})
	f := fault.From(err)
	if f == nil || f.Kind != fault.NoCapacity || f.Extra["explain"] == nil {
		t.Fatalf("no capacity: %v", err)
	}
}

func leaseOf(t testing.TB, ref agentapi.LeaseRef) id.Lease {
	t.Helper()
	l, err := id.Parse[id.Lease](ref.Lease)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Storage that is owed comes first: it is not held for a running cluster, which goes on to the end of what is held, and
// after a day nothing new is rented until it is paid.
func TestRent_StorageIsOwed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 3})
	c := w.runUp(spec(1, 1))
	wallet, err := ledger.Balance(w.ctx, w.d.Q, ledger.Wallet(w.renter.Org, usd))
	w.must(err)
	billingtest.OweStorage(t, w.d, w.renter.Org, wallet, time.Hour)
	w.age(c, 40*time.Minute)
	before := w.get(c).RunUntil
	w.tick(c)
	if c = w.get(c); !c.RunUntil.Equal(*before) || c.State != lifecycle.Running {
		t.Errorf("%s, extended from %s to %s", c.State, before, c.RunUntil)
	}
	s := spec(1, 1)
	s.DiskGB = 1
	rent := func() error {
		return failed(w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s}, idem.Request{}))
	}
	refused := func(when, why string) {
		t.Helper()
		if err := rent(); !fault.Is(err, fault.InsufficientFunds) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused("with what is owed", "that you owe for storage")
	w.Fund(w.renter.Org, 100*money.Unit)
	w.must(rent())
	w.exec("UPDATE data_meter SET unpaid_since = now() - interval '25 hours'")
	refused("owed for more than a day", "Nothing new can be rented")
}
