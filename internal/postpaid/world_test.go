package postpaid

import (
	"context"
	"log/slog"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/ledger"
	"github.com/musterhq/muster/internal/metering"
	"github.com/musterhq/muster/internal/money"
)

const eur = "EUR"

// world is an org with hosts to rent from.
type world struct {
	t        testing.TB
	d        *db.DB
	p        *Postpaid
	org      id.Org
	operator id.Org
	host     id.Host
	boss     account.Principal
}

func newWorld(t testing.TB, d *db.DB) *world {
	t.Helper()
	p, err := New(d, Config{Currency: eur}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, d: d, p: p, org: id.New[id.Org](), operator: id.New[id.Org](), host: id.New[id.Host](),
		boss: account.Principal{User: id.New[id.User](), Org: id.New[id.Org](), Admin: true}}
	for _, o := range []id.Org{w.org, w.operator, w.boss.Org} {
		w.exec("INSERT INTO org (id, name, personal) VALUES ($1, 'o', true)", o)
	}
	w.exec("INSERT INTO host (id, org_id, name, region, state) VALUES ($1, $2, $3, 'eu', 'active')", w.host, w.operator, w.host.String())
	return w
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.d.Pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) tx(f func(ctx context.Context, tx *db.Tx) error) {
	w.t.Helper()
	if err := w.d.InTx(w.t.Context(), f); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) set(c Change) (t Terms) {
	w.t.Helper()
	w.tx(func(ctx context.Context, tx *db.Tx) (err error) {
		t, err = w.p.Set(ctx, tx, w.boss, w.org, c)
		return err
	})
	return t
}

func (w *world) terms() Terms {
	w.t.Helper()
	t, err := w.p.Terms(w.t.Context(), w.org)
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// rent makes a cluster of one lease at that price and asks for time.
func (w *world) rent(rate money.Micro) (id.Cluster, error) {
	w.t.Helper()
	c := id.New[id.Cluster]()
	return c, w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if err := metering.CreateLeases(ctx, tx, []metering.NewLease{{
			ID: id.New[id.Lease](), Cluster: c, Node: id.New[id.Node](), Host: w.host, Renter: w.org, Operator: w.operator, GPUModel: "H100",
			GPUs: []id.GPU{id.New[id.GPU]()}, CPUs: 1, RAMMB: 1, DiskGB: 1, Currency: eur, HostSharePPM: 850_000, Epoch: 1, Rate: rate,
			Items: []metering.PriceItem{{Label: "1 × H100", Quantity: 1, Unit: "gpu", UnitRate: rate, Rate: rate}},
		}}); err != nil {
			return err
		}
		_, err := metering.Authorise(ctx, tx, metering.AuthoriseRequest{Cluster: c, Org: w.org, Currency: eur})
		return err
	})
}

func (w *world) balance(a ledger.Account) money.Nano {
	w.t.Helper()
	n, err := ledger.Balance(w.t.Context(), w.d.Q, a)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) mustBalance() {
	w.t.Helper()
	b, err := ledger.Check(w.t.Context(), w.d)
	if err != nil || !b.Balanced() || b.Debits.Cmp(b.Credits) != 0 {
		w.t.Fatalf("books: %v %v", b.Problems, err)
	}
}
