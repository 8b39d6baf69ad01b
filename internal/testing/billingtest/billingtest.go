// Package billingtest is the world in which packages of billing are tested: a database with organisations and hosts,
// the ledger's entries, and our own Stripe. It knows no package above the ledger, so that all of them can use it.
package billingtest

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/sandbox"
)

const (
	// EUR is the currency of tests.
	EUR = "EUR"
	// Secret signs Stripe's webhooks.
	Secret = "whsec_test"
)

// World is a database with what billing needs. Its methods fail the test if they do not work.
type World struct {
	T  testing.TB
	DB *db.DB
}

// New returns a world on a database, which it does not change.
func New(t testing.TB, d *db.DB) *World { return &World{t, d} }

// Exec executes a statement outside of transactions.
func (w *World) Exec(sql string, args ...any) {
	w.T.Helper()
	if _, err := w.DB.Pool.Exec(context.Background(), sql, args...); err != nil {
		w.T.Fatalf("%s: %v", sql, err)
	}
}

// Tx calls f in a transaction.
func (w *World) Tx(f func(ctx context.Context, tx *db.Tx) error) {
	w.T.Helper()
	if err := w.DB.InTx(context.Background(), f); err != nil {
		w.T.Fatal(err)
	}
}

// Now returns PostgreSQL's clock.
func (w *World) Now() time.Time {
	w.T.Helper()
	at, err := w.DB.Q.DatabaseTime(context.Background())
	if err != nil {
		w.T.Fatal(err)
	}
	return at
}

// Org creates an organisation.
func (w *World) Org() id.Org {
	w.T.Helper()
	org := id.New[id.Org]()
	w.Exec("INSERT INTO org (id, name, personal) VALUES ($1, 'o', true)", org)
	return org
}

// Admin creates an admin, who is the owner of an organisation.
func (w *World) Admin() account.Principal {
	w.T.Helper()
	who := account.Principal{Org: w.Org(), User: id.New[id.User](), Admin: true}
	w.Exec("INSERT INTO app_user (id, email, password_hash, admin) VALUES ($1, $2, 'x', true)", who.User,
		who.User.String()+"@muster.test")
	w.Exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'owner')", who.Org, who.User)
	return who
}

// Host creates a host of an operator, with the public key by which its signatures are verified; nil: it signs nothing.
func (w *World) Host(operator id.Org, public []byte) id.Host {
	w.T.Helper()
	host := id.New[id.Host]()
	w.Exec("INSERT INTO host (id, org_id, name, region, state) VALUES ($1, $2, $3, 'eu', 'active')", host, operator,
		"rack-"+host.Short())
	if public != nil {
		w.Exec("INSERT INTO host_key (host_id, link_key, attest_key) VALUES ($1, $2, $3)", host, host.String(), public)
	}
	return host
}

// Post books transfers in one entry, and returns the ledger's error.
func (w *World) Post(kind string, transfers ...ledger.Transfer) error {
	return w.DB.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind:      kind,
			Key:       kind + ":" + id.New[id.LedgerTx]().String(),
			Transfers: transfers,
		})
		return err
	})
}

// Move books one transfer, of kind topup.
func (w *World) Move(debit, credit ledger.Account, amount money.Nano) {
	w.T.Helper()
	if err := w.Post("topup", ledger.Transfer{Debit: debit, Credit: credit, Amount: amount}); err != nil {
		w.T.Fatal(err)
	}
}

// Balance returns what is in an account.
func (w *World) Balance(a ledger.Account) money.Nano {
	w.T.Helper()
	n, err := ledger.Balance(context.Background(), w.DB.Q, a)
	if err != nil {
		w.T.Fatal(err)
	}
	return n
}

// MustBalance checks the whole ledger.
func (w *World) MustBalance() {
	w.T.Helper()
	b, err := ledger.Check(context.Background(), w.DB)
	if err != nil || !b.Balanced() || b.Debits.Cmp(b.Credits) != 0 {
		w.T.Fatalf("ledger: %v %v", b.Problems, err)
	}
}

// Stripe is our own Stripe, with a client of it.
type Stripe struct {
	*sandbox.Server
	URL    string
	Client *stripe.Client
}

// Stripe starts a Stripe whose clock is now (nil: the real one). Its client waits for an answer as long as patience.
func (w *World) Stripe(now func() time.Time, patience time.Duration) *Stripe {
	w.T.Helper()
	fake, err := sandbox.New(sandbox.Config{WebhookSecret: Secret, PublicURL: "http://pay.test", Now: now})
	if err != nil {
		w.T.Fatal(err)
	}
	srv := httptest.NewServer(fake)
	w.T.Cleanup(srv.Close)
	c, err := stripe.New(stripe.Config{Key: "sk_test_x", WebhookSecret: Secret, URL: srv.URL, Timeout: patience})
	if err != nil {
		w.T.Fatal(err)
	}
	return &Stripe{fake, srv.URL, c}
}

// Patience is how long a client should wait for a Stripe that answers: a busy machine is not an outage.
const Patience = 30 * time.Second

// Outbox is the method of outbox.Outbox that sends to Stripe.
type Outbox interface {
	SendDue(context.Context) (int, error)
}

// Inbox is the methods of events.Inbox that receive from Stripe.
type Inbox interface {
	Receive(ctx context.Context, payload []byte, signature string) error
	Process(context.Context) (int, error)
}

// SendAll makes every row of the outbox due and sends it, until none is left or none of them can be sent.
func (w *World) SendAll(out Outbox) {
	w.T.Helper()
	for stuck := 0; stuck < 5; {
		w.Exec("UPDATE stripe_outbox SET next_at = clock_timestamp() WHERE state IN ('pending', 'sent', 'unknown')")
		n, err := out.SendDue(context.Background())
		if err != nil {
			w.T.Fatal(err)
		}
		var left int
		if err := w.DB.Pool.QueryRow(context.Background(), "SELECT count(*) FROM stripe_outbox WHERE state IN "+
			"('pending', 'sent', 'unknown')").Scan(&left); err != nil {
			w.T.Fatal(err)
		}
		if left == 0 {
			return
		}
		if n == 0 {
			stuck++
		}
	}
}

// Deliver receives webhooks, signed now, and processes all events.
func (w *World) Deliver(in Inbox, ds []sandbox.Delivery) {
	w.T.Helper()
	for _, d := range ds {
		if err := in.Receive(context.Background(), d.Payload, sandbox.Sign(d.Payload, Secret,
			time.Now())); err != nil {
			w.T.Fatal(err)
		}
	}
	for n := 1; n > 0; {
		var err error
		if n, err = in.Process(context.Background()); err != nil {
			w.T.Fatal(err)
		}
	}
}

// Err returns the error of a use case whose result the test does not need.
func Err[T any](_ T, _ idem.Outcome, err error) error { return err }
