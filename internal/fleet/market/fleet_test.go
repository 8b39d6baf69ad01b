package market_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
	"github.com/musterhq/muster/internal/testing/fleettest/markettest"
)

const currency = fleettest.Currency

// world is a database with a market and an operator.
type world struct {
	*fleettest.World
	t        testing.TB
	d        *db.DB
	m        *market.Market
	operator id.Org
	tenant   id.Org // who rents, where it does not matter who
	user     id.User
}

func newWorld(t testing.TB) *world {
	t.Helper()
	d := dbtest.New(t)
	w := &world{World: fleettest.New(t, d), t: t, d: d}
	w.m = w.replica()
	w.user = w.SignUp("operator").User
	w.operator, w.tenant = w.org(), w.org()
	return w
}

// replica is one more server on the same database.
func (w *world) replica() *market.Market { return w.replicaOf(0) }

// replicaOf is a replica whose view may be so old.
func (w *world) replicaOf(age time.Duration) *market.Market {
	w.t.Helper()
	return markettest.New(w.World, market.Config{MaxAge: age})
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	w.Exec(sql, args...)
}

func (w *world) tx(f func(ctx context.Context, tx *db.Tx) error) error {
	return w.d.InTx(w.t.Context(), f)
}

func (w *world) must(f func(ctx context.Context, tx *db.Tx) error) {
	w.t.Helper()
	w.Tx(f)
}

func (w *world) org() id.Org {
	w.t.Helper()
	return w.Org("org")
}

// renter is an org with credit.
func (w *world) renter(credit money.Nano) id.Org {
	w.t.Helper()
	o := w.org()
	if credit > 0 {
		w.Fund(o, credit)
	}
	return o
}

// host enrols a connected host of n GPUs and prices it.
func (w *world) host(name string, n int, price string) id.Host {
	w.t.Helper()
	h := id.New[id.Host]()
	w.exec(`INSERT INTO host (id, org_id, name, region, state, cpu_cores, ram_mb, disk_gb, driver, cuda_max)
		VALUES ($1, $2, $3, 'eu-west', 'active', $4, $5, 500, '550.54.15', '12.4')`, h, w.operator, name, 8*n, n<<15)
	w.exec(`INSERT INTO host_status (host_id, connected, last_sync_at, protocol) VALUES ($1, true, clock_timestamp(),
		1)`, h)
	for i := range n {
		w.exec(`INSERT INTO gpu (id, host_id, uuid, idx, model, arch, vram_mb, compute_cap, pcie_gen, nvlink, nvlink_gbps)
			VALUES ($1, $2, $3, $4, 'NVIDIA H100 80GB HBM3', 'Hopper', 81559, '9.0', 5, true, 900)`,
			id.New[id.GPU](), h, fmt.Sprintf("GPU-%s-%d", h, i), i)
	}
	w.must(func(ctx context.Context, tx *db.Tx) error { return w.m.SyncOffers(ctx, tx, h) })
	if price != "" {
		w.price(h, price)
	}
	return h
}

func (w *world) price(h id.Host, price string) {
	w.t.Helper()
	p, err := money.ParseMicro(price)
	w.Must(err)
	markettest.Price(w.World, w.m, w.of(w.operator), h, p)
}

// of is the world's user, acting for an organisation.
func (w *world) of(org id.Org) account.Principal { return account.Principal{Org: org, User: w.user} }

func spec(nodes, gpus int, query string) market.Spec {
	s := market.DefaultSpec()
	s.Image, s.Nodes, s.GPUsPerNode, s.GPU = "busybox", nodes, gpus, query
	return s
}

// request is what placement reads of a valid spec.
func (w *world) request(renter id.Org, s market.Spec) market.Request {
	w.t.Helper()
	a, err := s.Request(renter)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// rent holds a spec for fresh leases, the way a cluster does.
func (w *world) rent(m *market.Market, s market.Spec) (market.Placement, error) {
	var held market.Placement
	err := m.Planning(w.t.Context(), w.request(w.tenant, s), func(_ context.Context, plan market.Placement,
		refused error) error {
		if refused != nil {
			return refused
		}
		return w.tx(func(ctx context.Context, tx *db.Tx) (err error) {
			held, err = m.Claim(ctx, tx, plan, id.New[id.Cluster](), func(int) id.Lease { return id.New[id.Lease]() })
			return err
		})
	})
	return held, err
}

func (w *world) quote(m *market.Market, org id.Org, s market.Spec) (market.Quote, error) {
	q, _, err := m.Quote(w.t.Context(), w.of(org), s, idem.Request{})
	return q, err
}

// claims are the live claims by kind.
func (w *world) claims(kind host.ClaimKind) int {
	w.t.Helper()
	var n int
	err := w.d.Pool.QueryRow(w.t.Context(),
		"SELECT count(*) FROM gpu_claim WHERE kind = $1 AND ended_at IS NULL AND coalesce(expires_at > clock_timestamp(), "+
			"true)", kind).Scan(&n)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) free(m *market.Market) int {
	w.t.Helper()
	p, err := m.SearchOffers(w.t.Context(), market.OfferSearch{})
	if err != nil {
		w.t.Fatal(err)
	}
	return p.GPUsFree
}

func gpus(p market.Placement) []id.GPU {
	var out []id.GPU
	for _, n := range p.Nodes {
		for _, g := range n.GPUs {
			out = append(out, g.ID)
		}
	}
	slices.SortFunc(out, id.GPU.Compare)
	return out
}
