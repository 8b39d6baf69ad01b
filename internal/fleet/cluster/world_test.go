package cluster_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
	"github.com/musterhq/muster/internal/testing/fleettest/markettest"
)

const usd = fleettest.Currency

// world is a fleet of fake hosts, a renter with money, and replicas of the server, on one database.
type world struct {
	*fleettest.World
	t        testing.TB
	ctx      context.Context
	d        *db.DB
	clusters []*cluster.Clusters // one per replica
	market   *market.Market
	operator account.Principal
	renter   account.Principal
	hosts    []*fakeHost

	mu    sync.Mutex
	ranks map[int]behaviour // by rank; see behave
}

type worldConfig struct {
	hosts, gpus int
	replicas    int // 0 = 1
	starts      fairness.StartRules
	relist      time.Duration // market.Config.RelistLock
	funds       money.Nano    // 0 = 1000 units
	lostAfter   time.Duration // cluster.Config.LostAfter
	db          *db.DB        // nil: one of its own
}

func newWorld(t testing.TB, c worldConfig) *world {
	t.Helper()
	if c.db == nil {
		c.db = dbtest.New(t)
	}
	w := &world{World: fleettest.New(t, c.db), t: t, ctx: t.Context(), d: c.db, ranks: map[int]behaviour{}}
	for range max(c.replicas, 1) {
		w.market = markettest.New(w.World, market.Config{RelistLock: c.relist})
		w.clusters = append(w.clusters, cluster.New(w.d, w.market, nil, cluster.Config{
			Currency:        usd,
			Box:             w.Box(),
			Starts:          c.starts,
			LostAfter:       c.lostAfter,
			KnownRegistries: []string{"index.docker.io", ".pkg.dev"},
		}))
	}
	w.operator, w.renter = w.SignUp("operator"), w.SignUp("renter")
	if c.funds == 0 {
		c.funds = 1000 * money.Unit
	}
	w.Fund(w.renter.Org, c.funds)
	for i := range c.hosts {
		w.addHost(i, c.gpus)
	}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	w.Must(err)
}

func (w *world) tx(f func(ctx context.Context, tx *db.Tx) error) {
	w.t.Helper()
	w.Tx(f)
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	w.Exec(sql, args...)
}

// price of a GPU-hour: a thousandth of it per 3.6 s.
const price = money.Micro(2_000_000)

// addHost enrols a host as an agent would, reports its inventory, prices it and connects it.
func (w *world) addHost(n, gpus int) {
	w.t.Helper()
	w.addHostOf(w.operator, n, inventory(n, gpus))
}

// addHostOf is addHost for an operator's host with this inventory.
func (w *world) addHostOf(operator account.Principal, n int, inv agentapi.Inventory) *fakeHost {
	w.t.Helper()
	h := &fakeHost{
		w:     w,
		boot:  inv.BootID,
		born:  time.Now(),
		runs:  map[agentapi.LeaseRef]*run{},
		until: map[agentapi.LeaseRef]int64{},
	}
	agent := w.AddHost(operator, inv, "rack-1", uint64(n+1))
	h.id, h.key = agent.Host, agent.Attest
	w.must(h.sync(w.ctx, 0))
	w.tx(func(ctx context.Context, tx *db.Tx) error { return fleettest.RecordInventory(ctx, tx, h.id, inv) })
	markettest.Price(w.World, w.market, operator, h.id, price)
	w.hosts = append(w.hosts, h)
	return h
}

// inventory returns what host n reports.
func inventory(n, gpus int) agentapi.Inventory {
	inv := agentapi.Inventory{
		Protocol:      agentapi.Protocol,
		AgentVersion:  "test",
		BootID:        fmt.Sprintf("boot-%d", n),
		Hostname:      fmt.Sprintf("host-%d", n),
		Arch:          "amd64",
		CPUCores:      8 * gpus,
		RAMMB:         int64(gpus) * 64_000,
		DiskGB:        10_000,
		DiskLimited:   true,
		Driver:        "550.54",
		CUDAMax:       "12.4",
		Simulated:     true,
		AttachMode:    "none",
		MultiNode:     true,
		DockerVersion: "25.0",
		StorageDriver: "overlay2",
	}
	for g := range gpus {
		inv.GPUs = append(inv.GPUs, agentapi.GPU{
			UUID:         fmt.Sprintf("GPU-%04d-%02d", n, g),
			Index:        g,
			PCIBus:       fmt.Sprintf("00000000:%02X:00.0", g+1),
			Model:        "NVIDIA H100 80GB HBM3",
			Architecture: "Hopper",
			VRAMMB:       81_559,
			ComputeCap:   "9.0",
			Health:       "healthy",
		})
	}
	return inv
}

// spec is a cluster over distinct hosts.
func spec(nodes, gpus int) market.Spec {
	s := market.DefaultSpec()
	s.Name, s.Image, s.Nodes, s.GPUsPerNode = "train", "example.com/train:1", nodes, gpus
	s.Command, s.Env = []string{"python", "train.py"}, map[string]string{"TOKEN": "secret-of-the-renter"}
	return s
}

func (w *world) rent(s market.Spec) cluster.Cluster {
	w.t.Helper()
	c, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s}, idem.Request{})
	w.must(err)
	return c
}

func (w *world) get(c cluster.Cluster) cluster.Cluster {
	w.t.Helper()
	got, err := w.clusters[0].Views.Get(w.ctx, w.renter.Org, c.ID)
	w.must(err)
	return got
}

// behave sets what a rank's runs do.
func (w *world) behave(rank int, b behaviour) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ranks[rank] = b
}

func (w *world) behaviour(rank int) behaviour {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ranks[rank]
}

// rounds lets the hosts sync until the cluster is as wanted.
func (w *world) rounds(c cluster.Cluster, what string, ok func(cluster.Cluster) bool,
	silent ...*fakeHost) cluster.Cluster {
	w.t.Helper()
	for range 40 {
		for i, h := range w.hosts {
			if contains(silent, h) {
				continue
			}
			w.must(h.sync(w.ctx, i))
		}
		if got := w.get(c); ok(got) {
			return got
		}
	}
	got := w.get(c)
	w.t.Fatalf("never %s: %s %s (%s), nodes %+v", what, got.State, got.Reason, got.Detail, got.Nodes)
	return got
}

func in(s lifecycle.State) func(cluster.Cluster) bool {
	return func(c cluster.Cluster) bool { return c.State == s }
}

func (w *world) runUp(s market.Spec) cluster.Cluster {
	w.t.Helper()
	return w.rounds(w.rent(s), "running", in(lifecycle.Running))
}

func contains(hs []*fakeHost, h *fakeHost) bool {
	for _, x := range hs {
		if x == h {
			return true
		}
	}
	return false
}

// tick makes the cluster due and lets the watchdog look at everything.
func (w *world) tick(c cluster.Cluster) {
	w.t.Helper()
	w.exec("UPDATE cluster SET due_at = clock_timestamp(), full_look_at = 'epoch' WHERE id = $1 AND due_at IS NOT NULL",
		c.ID)
	r, err := w.clusters[0].Watchdog.Pass(w.ctx)
	w.must(err)
	if r.Failed > 0 {
		w.t.Fatalf("the watchdog failed on %d clusters", r.Failed)
	}
}

// hostOf is the host a rank is on.
func (w *world) hostOf(c cluster.Cluster, rank int) *fakeHost {
	w.t.Helper()
	for _, h := range w.hosts {
		if h.id == c.Nodes[rank].HostID {
			return h
		}
	}
	w.t.Fatalf("rank %d is on no host of this fleet", rank)
	return nil
}

// quiet moves the last report of a rank that far into the past, and its peers receive nothing from it either.
func (w *world) quiet(c cluster.Cluster, rank int, by time.Duration) {
	w.t.Helper()
	ms := by.Milliseconds()
	w.exec(`UPDATE node_status s SET last_good_ms = last_good_ms - $3, reported_at = reported_at - $3::bigint * interval
		'1 ms'
		FROM node n WHERE n.id = s.node_id AND n.cluster_id = $1 AND n.rank = $2`, c.ID, rank, ms)
	w.exec(`UPDATE node SET started_at = started_at - $3::bigint * interval '1 ms', since = since - $3::bigint * interval
		'1 ms'
		WHERE cluster_id = $1 AND rank = $2`, c.ID, rank, ms)
	w.exec(`UPDATE node_status s SET peers_down = s.peers_down || $2::integer FROM node n WHERE n.id = s.node_id AND
		n.cluster_id = $1 AND n.rank <> $2`, c.ID, rank)
}

// clean lets hosts and watchdog finish and checks what must hold at the end of everything: no GPU is claimed, no money
// is held, the ledger balances, and the cluster's cost is what left the wallet.
func (w *world) clean(c cluster.Cluster, silent ...*fakeHost) cluster.Cluster {
	w.t.Helper()
	if len(silent) > 0 {
		w.rounds(c, "settled but for the silent", func(cluster.Cluster) bool { w.tick(c); return true }, silent...)
		w.deadline(c)
	}
	for range 6 {
		for i, h := range w.hosts {
			if !contains(silent, h) {
				w.must(h.sync(w.ctx, i))
			}
		}
		w.tick(c)
	}
	w.noClaims()
	w.ledger()
	held, err := ledger.Balance(w.ctx, w.d.Q, ledger.Hold(w.renter.Org, c.ID, usd))
	w.must(err)
	if held != 0 {
		w.t.Errorf("%s still holds %s", c.ID, held)
	}
	return w.get(c)
}

// deadline lets the time pass in which journals of a cluster's ended leases may still arrive.
func (w *world) deadline(c cluster.Cluster) {
	w.t.Helper()
	w.exec("UPDATE lease SET ended_at = ended_at - interval '25 hours', created_at = created_at - interval '25 hours' "+
		"WHERE cluster_id = $1 AND ended_at IS NOT NULL AND settled_at IS NULL", c.ID)
}

func (w *world) noClaims() {
	w.t.Helper()
	var n int
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT count(*) FROM gpu_claim WHERE ended_at IS NULL").Scan(&n))
	if n != 0 {
		w.t.Errorf("%d GPUs are still claimed", n)
	}
}

func (w *world) ledger() {
	w.t.Helper()
	tb, err := ledger.Check(w.ctx, w.d)
	w.must(err)
	if !tb.Balanced() {
		w.t.Errorf("the books do not balance: %+v", tb)
	}
}

// abandon lets a host be out of reach for so long that its claims end.
func (w *world) abandon(h *fakeHost) {
	w.t.Helper()
	w.exec(`UPDATE host_status SET connected = false, connected_at = connected_at - interval '1 hour', disconnected_at =
		clock_timestamp() - interval '1 hour',
		last_sync_at = last_sync_at - interval '1 hour' WHERE host_id = $1`, h.id)
	n, err := host.AbandonClaims(w.ctx, w.d)
	w.must(err)
	if n == 0 {
		w.t.Fatal("no claim was given up")
	}
}

func (w *world) quote(s market.Spec) market.Quote {
	w.t.Helper()
	q, _, err := w.market.Quote(w.ctx, w.renter, s, idem.Request{})
	w.must(err)
	return q
}
