package cluster_test

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

var startRules = fairness.StartRules{Window: 6 * time.Hour, Free: 10_800, Reserve: fairness.StartReserve,
	MarketPPM: 1_000_000}

// refusedStart rents as an organisation and returns the fault of the start quota, nil if there was room.
func (w *world) refusedStart(by account.Principal, s market.Spec) *fault.Fault {
	w.t.Helper()
	_, _, err := w.clusters[0].Rentals.Rent(w.ctx, by, cluster.RentRequest{Spec: s}, idem.Request{})
	f := fault.From(err)
	if err != nil && (f == nil || f.Kind != fault.RateLimited || f.RetryAfter <= 0 || f.Extra["limit"] != "start_quota") {
		w.t.Fatalf("refused otherwise: %v", err)
	}
	return f
}

// starting rents and lets the start take a time until now.
func (w *world) starting(s market.Spec, took time.Duration) cluster.Cluster {
	w.t.Helper()
	c := w.rent(s)
	w.exec("UPDATE cluster SET start_from = start_from - $2::bigint * interval '1 ms' WHERE id = $1", c.ID,
		took.Milliseconds())
	return c
}

// counted returns how many GPU-seconds count of all starts that ended.
func (w *world) counted() (gpuSeconds int64) {
	w.t.Helper()
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT coalesce(sum(gpu_ms), 0)::bigint / 1000 FROM start_hold").Scan(&gpuSeconds))
	return gpuSeconds
}

// paid adds to what hosts earned from an organisation in the present hour.
func (w *world) paid(by account.Principal, amount money.Nano) {
	w.t.Helper()
	w.Unguarded(`INSERT INTO operator_earning_hour AS e (host_org_id, currency, payer_org_id, hour, earned, last_at, first_id,
		last_id) VALUES ($1, $2, $3, date_trunc('hour', clock_timestamp()), $4, clock_timestamp(), $3, $3)
		ON CONFLICT (host_org_id, currency, payer_org_id, hour) DO UPDATE SET earned = e.earned + excluded.earned`,
		w.operator.Org, usd, by.Org, amount)
}

// near reports whether a start of some seconds, and the little that the test takes on a busy machine, counts so much.
func near(got, want, gpus int64) bool { return got >= want && got < want+120*gpus }

// However a start ends, and whether it runs, an organisation that does not pay holds GPUs for a bounded time only.
func TestStartsHoldGPUsForABoundedTime(t *testing.T) {
	t.Parallel()
	const gpus, slow = 8, 25 * time.Minute
	pulling := func(h *fakeHost, r *run) {
		r.State, r.AtBarrier, r.Started, r.Good = agentapi.NodePulling, false, false, false
	}
	for name, c := range map[string]struct {
		rank behaviour
		end  func(w *world, c cluster.Cluster)
		ends lifecycle.State
	}{
		"it runs, and is released at once": {
			end: func(w *world, c cluster.Cluster) {
				w.rounds(c, "running", in(lifecycle.Running))
				w.release(c)
			},
		},
		"a registry that cannot be reached": {
			rank: func(h *fakeHost, r *run) {
				if r.State == agentapi.NodePulling {
					h.fail(r, agentapi.ReasonRegistryAway)
				}
			},
			end: func(w *world, c cluster.Cluster) { w.rounds(c, "failed", in(lifecycle.Failed)) },
		},
		"a registry that is slow until the deadline": {
			rank: pulling,
			end: func(w *world, c cluster.Cluster) {
				w.rounds(c, "pulling", func(cluster.Cluster) bool { return true })
				w.exec("UPDATE cluster SET start_deadline = clock_timestamp() - interval '1 ms' WHERE id = $1", c.ID)
				w.tick(c)
				if got := w.get(c); got.Reason != lifecycle.ReasonTimeout {
					w.t.Fatalf("%s %s", got.State, got.Reason)
				}
			},
		},
		"released while it pulls": {rank: pulling, end: func(w *world, c cluster.Cluster) { w.release(c) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldConfig{hosts: 2, gpus: gpus, starts: startRules})
			if c.rank != nil {
				w.behave(0, c.rank)
			}
			got := w.starting(spec(1, gpus), slow)
			if f := w.refusedStart(w.renter, spec(1, 1)); f == nil {
				t.Error("another start while this one holds its GPUs")
			}
			c.end(w, got)
			if n := w.counted(); !near(n, int64(slow.Seconds())*gpus, gpus) {
				t.Fatalf("%d GPU-seconds count", n)
			}
			f := w.refusedStart(w.renter, spec(1, 1))
			if f == nil || f.RetryAfter < 5*time.Hour || f.Extra["held_gpu_s"].(int64) < 12_000 {
				t.Fatalf("after 200 GPU-minutes: %+v", f)
			}
			other := w.SignUp("other")
			w.Fund(other.Org, 100*money.Unit)
			if f := w.refusedStart(other, spec(1, 1)); f != nil {
				t.Errorf("another organisation: %v", f)
			}
			w.paid(w.renter, 1000*money.Unit)
			if f := w.refusedStart(w.renter, spec(1, 1)); f != nil {
				t.Errorf("what it paid does not raise the limit: %v", f)
			}
			w.Unguarded("UPDATE operator_earning_hour SET earned = 0")
			w.exec("UPDATE start_hold SET ended_at = ended_at - interval '6 hours'")
			if f := w.refusedStart(w.renter, spec(1, 1)); f != nil {
				t.Errorf("six hours later: %v", f)
			}
		})
	}
}

// Starts under way count, too: rents side by side hold no more GPUs for nothing than rents one after the other, and a
// start that runs gives way to the next.
func TestStartsUnderWayCountInTheQuota(t *testing.T) {
	t.Parallel()
	rules := startRules
	rules.Free = 1800
	w := newWorld(t, worldConfig{hosts: 4, gpus: 8, starts: rules})
	var under []cluster.Cluster
	var mu sync.Mutex
	var rents sync.WaitGroup
	for range 8 {
		rents.Go(func() {
			c, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: spec(1, 4)}, idem.Request{})
			if f := fault.From(err); err != nil && (f == nil || f.Extra["limit"] != "start_quota") {
				t.Error(err)
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				under = append(under, c)
			}
		})
	}
	rents.Wait()
	if len(under) != 4 { // 4 × 4 × 120 GPU-seconds are the first to reach 1800
		t.Fatalf("%d starts of 4 GPUs each are under way", len(under))
	}
	for _, c := range under {
		w.rounds(c, "running", in(lifecycle.Running))
	}
	w.rent(spec(1, 4))
}

// A command that fails and is started again holds its GPUs without paying, too.
func TestStartsAgainCountInTheQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 2, starts: startRules})
	s := spec(1, 2)
	s.Restart = "on_failure"
	c := w.runUp(s)
	before := w.counted()
	failed := false
	w.behave(0, func(h *fakeHost, r *run) {
		if r.Started && !failed {
			failed = true
			h.exit(r, 1)
		}
	})
	w.rounds(c, "starting again", in(lifecycle.Provisioning))
	w.exec("UPDATE cluster SET start_from = start_from - interval '10 minutes' WHERE id = $1", c.ID)
	w.rounds(c, "running again", in(lifecycle.Running))
	if n := w.counted() - before; !near(n, 1200, 2) {
		t.Errorf("%d GPU-seconds count", n)
	}
}

// What a host or the platform is to blame for does not count against the renter: but a renter and a host that it has an
// understanding with do not hold the GPUs of others so, and failures that a renter can cause are excused once a day.
func TestStartsThatHostsFail(t *testing.T) {
	t.Parallel()
	const slow, each = 10 * time.Minute, 600
	for name, c := range map[string]struct {
		reason        string
		others        bool // a rank of another operator
		first, second int64
	}{
		"its owner uses the GPU":                    {agentapi.ReasonGPUInUse, false, 0, 0},
		"its owner uses the GPU, the other waits":   {agentapi.ReasonGPUInUse, true, 0, each},
		"the runtime fails":                         {agentapi.ReasonRuntimeFailed, false, 0, 2 * each},
		"the runtime fails, the other waits":        {agentapi.ReasonRuntimeFailed, true, 0, 2 * each},
		"the network between them is not the hosts": {agentapi.ReasonPreflightFailed, false, 2 * each, 2 * each},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldConfig{hosts: 1, gpus: 1, starts: startRules})
			second := w.operator
			if c.others {
				second = w.SignUp("second")
			}
			w.addHostOf(second, 1, inventory(1, 1))
			for rank := range 2 {
				w.behave(rank, func(h *fakeHost, r *run) {
					if h == w.hosts[0] && (r.State == agentapi.NodePulling || r.State == agentapi.NodeStarting) {
						h.fail(r, c.reason)
					}
				})
			}
			s := spec(2, 1)
			if c.others {
				s.Trust = market.TrustAny
				for _, o := range []account.Principal{w.operator, second} {
					w.exec("INSERT INTO bond_terms (org_id, accept_unbonded, changed_by) VALUES ($1, true, $2)", o.Org, o.User)
				}
			}
			for i, want := range []int64{c.first, c.first + c.second} {
				got := w.starting(s, slow)
				w.rounds(got, "failed", in(lifecycle.Failed))
				w.clean(got)
				if n := w.counted(); !near(n, want, 4) && (want != 0 || n != 0) {
					t.Fatalf("%d GPU-seconds count after start %d, want %d", n, i+1, want)
				}
				w.exec("UPDATE gpu SET in_use = '', health = 'healthy'")
			}
		})
	}
}

// A slow host does not count against a renter whose image is in a registry that no renter can slow down.
func TestSlowHostsDoNotCount(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]int64{"pytorch/pytorch:2": 180 + 40, "europe-docker.pkg.dev/a/b/c": 180 + 40,
		"example.com/a:1": 1500} {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldConfig{hosts: 1, gpus: 1, starts: startRules})
			w.behave(0, func(_ *fakeHost, r *run) {
				if r.State == agentapi.NodePulling {
					r.Progress = agentapi.Progress{Step: "layers", Done: 1, Total: 1_000_000_000}
				}
			})
			s := spec(1, 1)
			s.Image = image
			c := w.starting(s, 1500*time.Second)
			w.rounds(c, "running", in(lifecycle.Running))
			if n := w.counted(); n != want && !(want == 1500 && near(n, want, 1)) {
				t.Errorf("%d GPU-seconds count, want %d", n, want)
			}
		})
	}
}

// Many new organisations together hold at most a part of the market; who pays is not held up by them.
func TestNewOrganisationsHoldAPartOfTheMarket(t *testing.T) {
	t.Parallel()
	rules := startRules
	rules.MarketPPM, rules.MarketLeast = 250_000, 2
	w := newWorld(t, worldConfig{hosts: 2, gpus: 8, starts: rules})
	w.Unguarded("INSERT INTO operator_earning (host_org_id, currency, payer_org_id, earned, returned, last_at) VALUES "+
		"($1, $2, $3, 1, 0, clock_timestamp())", w.operator.Org, usd, w.SignUp("earlier").Org)
	orgs := map[string]account.Principal{}
	for _, name := range []string{"a", "b", "c", "payer"} {
		orgs[name] = w.SignUp(name)
		w.Fund(orgs[name].Org, 100*money.Unit)
	}
	w.paid(orgs["payer"], 1000*money.Unit)
	if f := w.refusedStart(orgs["a"], spec(1, 5)); f == nil || f.Extra["free_gpus"] != int64(4) {
		t.Errorf("5 of 16 GPUs: %+v", f)
	}
	for name, refused := range map[string]bool{"a": false, "b": false} {
		if f := w.refusedStart(orgs[name], spec(1, 2)); (f != nil) != refused {
			t.Errorf("%s: %v", name, f)
		}
	}
	if f := w.refusedStart(orgs["c"], spec(1, 1)); f == nil || f.Extra["free_gpus"] != int64(0) {
		t.Errorf("a fifth GPU: %+v", f)
	}
	if f := w.refusedStart(orgs["payer"], spec(1, 8)); f != nil {
		t.Errorf("who pays: %v", f)
	}
}

// However many starts there were, a rent reads few rows, and they count as before.
func TestEndedStartsAreMerged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1, starts: startRules})
	c := w.runUp(spec(1, 1))
	w.exec(`INSERT INTO start_hold (org_id, cluster_id, ended_at, held_ms, gpu_ms, value, excused_by)
		SELECT $1, $2, date_bin('5 minutes', clock_timestamp(), 'epoch') - n % 40 * interval '1 minute', 3000, 2000, 10,
		CASE n WHEN 30 THEN $3::uuid END FROM generate_series(1, 400) n`, w.renter.Org, c.ID, w.operator.Org)
	sums := func() map[string]int64 {
		t.Helper()
		out := map[string]int64{}
		for _, of := range []string{"starts", "held_ms", "gpu_ms", "value"} {
			var n int64
			w.must(w.d.Pool.QueryRow(w.ctx, "SELECT sum("+of+")::bigint FROM start_hold").Scan(&n))
			out[of] = n
		}
		return out
	}
	before := sums()
	for range 2 {
		if _, err := w.clusters[0].Hosts.DropOldFacts(w.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if after := sums(); !maps.Equal(before, after) {
		t.Errorf("%v became %v", before, after)
	}
	var rows []int64
	r, err := w.d.Pool.Query(w.ctx, "SELECT starts FROM start_hold WHERE ended_at < clock_timestamp() - interval "+
		"'16 minutes' ORDER BY starts")
	w.must(err)
	for r.Next() {
		var n int64
		w.must(r.Scan(&n))
		rows = append(rows, n)
	}
	w.must(r.Err())
	if len(rows) > 8 || rows[0] != 1 || slices.Max(rows) < 40 { // the excused one stays
		t.Errorf("%v starts per row", rows)
	}
}
