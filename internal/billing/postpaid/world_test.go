package postpaid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

const eur = "EUR"

// world is an org with hosts to rent from, and a Stripe that bills it. Its clock and ours are moved by the test.
type world struct {
	t        testing.TB
	d        *db.DB
	fake     *sandbox.Server
	pay      *payment.Payments
	p        *Postpaid
	ahead    atomic.Int64 // of the real time, ns
	org      id.Org
	taxes    *taxes
	operator id.Org
	host     id.Host
	boss     account.Principal
	n        int
}

const secret = "whsec_x"

// taxes are what the test says they are; none, until it does.
type taxes struct {
	tax.Flat
	away bool // nobody says
}

func (x *taxes) Tax(ctx context.Context, s tax.Sale) (tax.Tax, error) {
	if x.away {
		return tax.Tax{}, errors.New("nobody is there")
	}
	return x.Flat.Tax(ctx, s)
}

func newWorld(t testing.TB, d *db.DB) *world {
	t.Helper()
	return newWorldPaying(t, d, "pm_card_visa")
}

// newWorldPaying is newWorld with another card of Stripe's test cards.
func newWorldPaying(t testing.TB, d *db.DB, card string) *world {
	t.Helper()
	w := &world{t: t, d: d, taxes: &taxes{}, org: id.New[id.Org](), operator: id.New[id.Org](), host: id.New[id.Host](),
		boss: account.Principal{User: id.New[id.User](), Org: id.New[id.Org](), Admin: true}}
	var err error
	if w.fake, err = sandbox.New(sandbox.Config{
		WebhookSecret: secret,
		PublicURL:     "http://pay.test",
		Now:           func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) },
	}); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(w.fake)
	t.Cleanup(srv.Close)
	c, err := stripe.New(stripe.Config{Key: "sk_test_x", WebhookSecret: secret, URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if w.pay, err = payment.New(d, c, payment.Config{
		Currency:      eur,
		DefaultMethod: card,
		ReturnURL:     "http://m.test/billing",
		Sandbox:       true,
		Taxer:         w.taxes,
	}, log); err != nil {
		t.Fatal(err)
	}
	if w.p, err = New(d, w.pay, Config{Currency: eur}, log); err != nil {
		t.Fatal(err)
	}
	for _, o := range []id.Org{w.org, w.operator, w.boss.Org} {
		w.exec("INSERT INTO org (id, name, personal) VALUES ($1, 'o', true)", o)
	}
	w.exec("INSERT INTO host (id, org_id, name, region, state) VALUES ($1, $2, $3, 'eu', 'active')", w.host, w.operator,
		w.host.String())
	return w
}

// pass lets time go by, here and at Stripe.
func (w *world) pass(d time.Duration) {
	w.ahead.Add(int64(d))
	w.p.ahead = time.Duration(w.ahead.Load())
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

func (w *world) set(c Change) Terms {
	w.t.Helper()
	t, _, err := w.p.Set(w.t.Context(), w.boss, w.org, c, idem.Request{})
	if err != nil {
		w.t.Fatal(err)
	}
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
		node, lease := id.New[id.Node](), id.New[id.Lease]()
		if err := dbtest.InsertCluster(ctx, tx, c, w.org, eur,
			dbtest.Place{Node: node, Lease: lease, Host: w.host}); err != nil {
			return err
		}
		if err := metering.CreateLeases(ctx, tx, []metering.NewLease{{
			ID:           lease,
			Cluster:      c,
			Node:         node,
			Host:         w.host,
			Renter:       w.org,
			Operator:     w.operator,
			GPUModel:     "H100",
			GPUs:         []id.GPU{id.New[id.GPU]()},
			CPUs:         1,
			RAMMB:        1,
			DiskGB:       1,
			Currency:     eur,
			HostSharePPM: 850_000,
			Epoch:        1,
			Rate:         rate,
			Items:        []metering.PriceItem{{Label: "1 × H100", Quantity: 1, Unit: "gpu", UnitRate: rate, Rate: rate}},
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

// charge bills the hour, whether or not it was billed.
func (w *world) charge() error {
	return w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error { return w.p.chargeHourly(ctx, tx, w.org) })
}

// send says all that is to be said to Stripe, until it is said.
func (w *world) send() {
	w.t.Helper()
	for range 30 {
		w.exec("UPDATE stripe_outbox SET next_at = clock_timestamp() WHERE state IN ('pending', 'sent', 'unknown')")
		if _, err := w.pay.SendDue(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		var n int
		if err := w.d.Pool.QueryRow(w.t.Context(), "SELECT count(*) FROM stripe_outbox WHERE state IN ('pending', 'sent', "+
			"'unknown')").Scan(&n); err != nil {
			w.t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
	w.t.Fatal("the outbox is never empty")
}

// receive takes in deliveries, signed now: Stripe's clock is ahead of ours.
func (w *world) receive(ds []sandbox.Delivery) {
	w.t.Helper()
	for _, d := range ds {
		if err := w.pay.ReceiveWebhook(w.t.Context(), d.Payload, sandbox.Sign(d.Payload, secret, time.Now())); err != nil {
			w.t.Fatal(err)
		}
	}
	for n := 1; n > 0; {
		var err error
		if n, err = w.pay.ProcessEvents(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// settle has everything said and heard that there is, without a webhook.
func (w *world) settle() {
	w.t.Helper()
	for range 4 {
		w.send()
		// Stripe's clock is ahead of PostgreSQL's
		w.exec("UPDATE postpaid_org SET asked_at = asked_at - interval '1 day', period_end = clock_timestamp() - interval " +
			"'1 day'")
		if _, err := w.p.refresh(w.t.Context(), 0); err != nil {
			w.t.Fatal(err)
		}
		w.fake.Bill()
	}
}

func (w *world) customer() string {
	w.t.Helper()
	c, err := w.d.Q.StripeCustomer(w.t.Context(), w.org)
	if err != nil {
		w.t.Fatal(err)
	}
	return c.CustomerID
}

func (w *world) invoices() []dbq.PostpaidInvoice {
	w.t.Helper()
	all, err := w.d.Q.ListPostpaidInvoices(w.t.Context(), w.org, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// post books what moves the org's money: one entry.
func (w *world) post(kind string, transfers ...ledger.Transfer) error {
	w.n++
	return w.d.InTx(w.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind:      kind,
			Key:       fmt.Sprintf("%s:%s:%d", kind, w.org, w.n),
			Transfers: transfers,
		})
		return err
	})
}

// failed is the error of a use case, whose result the test does not need.
func failed[T any](_ T, _ idem.Outcome, err error) error { return err }
