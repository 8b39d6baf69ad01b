package postpaid

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe/events"
	"github.com/musterhq/muster/internal/stripe/outbox"
	"github.com/musterhq/muster/internal/stripe/reconcile"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

const eur = billingtest.EUR

// world is an org with hosts to rent from, and a Stripe that bills it. Its clock and ours are moved by the test.
type world struct {
	*billingtest.World
	fake     *billingtest.Stripe
	pay      *payment.Payments
	in       *events.Inbox
	rec      *reconcile.Reconciler
	p        *Postpaid
	ahead    atomic.Int64 // of the real time, ns
	org      id.Org
	taxes    *taxes
	operator id.Org
	host     id.Host
	boss     account.Principal
}

// taxes are set by the test; none by default.
type taxes struct {
	tax.Flat
	away bool // the tax cannot be determined
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
	w := &world{World: billingtest.New(t, d), taxes: &taxes{}}
	w.org, w.operator = w.Org(), w.Org()
	w.host = w.Host(w.operator, nil)
	w.boss = account.Principal{User: id.New[id.User](), Org: w.Org(), Admin: true}
	w.fake = w.Stripe(func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }, 0)
	var err error
	log := slog.New(slog.DiscardHandler)
	out := outbox.New(d, w.fake.Client, log)
	w.in = events.New(d, w.fake.Client, log)
	w.rec = reconcile.New(d, w.fake.Client, w.in.Refresh, eur, log)
	if w.pay, err = payment.New(d, out, w.in, payment.Config{
		Currency:      eur,
		DefaultMethod: card,
		ReturnURL:     "http://m.test/billing",
		Sandbox:       true,
		Taxer:         w.taxes,
	}, log); err != nil {
		t.Fatal(err)
	}
	if w.p, err = New(d, out, w.pay.Invoices, Config{Currency: eur}, log); err != nil {
		t.Fatal(err)
	}
	return w
}

// pass lets time go by, here and at Stripe.
func (w *world) pass(d time.Duration) {
	w.ahead.Add(int64(d))
	w.p.ahead = time.Duration(w.ahead.Load())
}

func (w *world) set(c Change) Terms {
	w.T.Helper()
	t, _, err := w.p.Set(w.T.Context(), w.boss, w.org, c, idem.Request{})
	if err != nil {
		w.T.Fatal(err)
	}
	return t
}

func (w *world) terms() Terms {
	w.T.Helper()
	t, err := w.p.Terms(w.T.Context(), w.org)
	if err != nil {
		w.T.Fatal(err)
	}
	return t
}

// rent makes a cluster of one lease at that price and asks for time.
func (w *world) rent(rate money.Micro) (id.Cluster, error) {
	w.T.Helper()
	c := id.New[id.Cluster]()
	return c, w.DB.InTx(w.T.Context(), func(ctx context.Context, tx *db.Tx) error {
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

// charge bills the hour, whether or not it was billed.
func (w *world) charge() error {
	return w.DB.InTx(w.T.Context(), func(ctx context.Context, tx *db.Tx) error { return w.p.chargeHourly(ctx, tx, w.org) })
}

// settle sends and reads everything that is due, without a webhook.
func (w *world) settle() {
	w.T.Helper()
	for range 4 {
		w.SendAll(w.p.out)
		// Stripe's clock is ahead of PostgreSQL's
		w.Exec("UPDATE postpaid_org SET asked_at = asked_at - interval '1 day', period_end = clock_timestamp() - interval " +
			"'1 day'")
		if _, err := w.p.refresh(w.T.Context(), 0); err != nil {
			w.T.Fatal(err)
		}
		w.fake.Billing.Run()
	}
}

func (w *world) customer() string {
	w.T.Helper()
	c, err := w.DB.Q.StripeCustomer(w.T.Context(), w.org)
	if err != nil {
		w.T.Fatal(err)
	}
	return c.CustomerID
}

func (w *world) invoices() []dbq.PostpaidInvoice {
	w.T.Helper()
	all, err := w.DB.Q.ListPostpaidInvoices(w.T.Context(), w.org, 1000)
	if err != nil {
		w.T.Fatal(err)
	}
	return all
}
