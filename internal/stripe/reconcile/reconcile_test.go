package reconcile

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// world is a Stripe whose balance changes without the platform, and its reconciler.
type world struct {
	*billingtest.World
	stripe *billingtest.Stripe
	r      *Reconciler
	admin  account.Principal
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := billingtest.New(t, dbtest.New(t))
	fake := w.Stripe(nil, billingtest.Patience)
	return &world{w, fake, newReconciler(w, fake.Client), w.Admin()}
}

func newReconciler(w *billingtest.World, c *stripe.Client) *Reconciler {
	none := func(context.Context, string) (string, error) { return "", nil }
	return New(w.DB, c, none, billingtest.EUR, slog.New(slog.DiscardHandler))
}

func (w *world) reconcile() Result {
	w.T.Helper()
	did, err := w.r.Reconcile(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	return did
}

func (w *world) reconciliation() client.Reconciliation {
	w.T.Helper()
	r, err := w.r.Reconciliation(w.T.Context(), w.admin)
	if err != nil {
		w.T.Fatal(err)
	}
	return r
}

func (w *world) count(sql string) (n int) {
	w.T.Helper()
	if err := w.DB.Pool.QueryRow(w.T.Context(), sql).Scan(&n); err != nil {
		w.T.Fatal(err)
	}
	return n
}

// A reading of Stripe's balance that fails after its first page leaves no gap behind.
func TestReconcile_FailedReadingLeavesNoGap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began, err := w.DB.Q.DatabaseTime(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 120 { // two pages
		w.stripe.Balance.Stray("stripe_fee", "eur", -7)
	}
	broken := true
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if broken && r.URL.Path == "/v1/balance_transactions" && r.URL.Query().Get("starting_after") != "" {
			rw.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.stripe.ServeHTTP(rw, r)
	}))
	t.Cleanup(srv.Close)
	c, err := stripe.New(stripe.Config{Key: "sk_test_x", WebhookSecret: billingtest.Secret, URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	w.r = newReconciler(w.World, c)
	if _, err := w.r.Reconcile(t.Context()); err == nil {
		t.Fatal("the reading did not fail")
	}
	var past bool
	if err := w.DB.Pool.QueryRow(t.Context(), "SELECT through > $1 FROM stripe_read", began).Scan(&past); err != nil ||
		past {
		t.Fatal("the mark moved over a window that was not read to its end", err)
	}
	// A day later Stripe works again. What was not stored is older than the overlap.
	broken = false
	w.Exec("UPDATE stripe_read SET through = through + interval '1 day' WHERE through > clock_timestamp() - interval " +
		"'1 day'")
	w.reconcile()
	if n := w.count("SELECT count(*) FROM stripe_balance"); n != 120 {
		t.Fatalf("%d changes were read, want 120", n)
	}
	if r := w.reconciliation(); r.Difference != 0 || r.Matched != 120 {
		t.Fatalf("%+v", r)
	}
	w.MustBalance()
}

// What Stripe reports as its balance is compared with the changes that were read and with the ledger. Admins are
// notified once of a difference that lasts.
func TestReconcile_ComparesBalance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stripe.Balance.Stray("payout_cancel", "eur", 10_000)
	held := 100 * money.Unit
	funds := func() *client.StripeFunds {
		t.Helper()
		w.reconcile()
		return w.reconciliation().Funds
	}
	if f := funds(); f == nil || f.Available+f.Pending != held || f.Unread != 0 || f.Unbooked != 0 || f.OffSince != nil ||
		f.Wrong {
		t.Fatalf("%+v, want %s", f, held)
	}
	// Stripe holds 7 less than its changes come to: they were read wrong, or one was lost.
	off := stripe.Funds{Currency: billingtest.EUR, Available: int64(held/money.Cent) - 700}
	for i, notices := range []int{0, 1, 1} {
		if err := w.r.storeFunds(t.Context(), off); err != nil {
			t.Fatal(err)
		}
		f, err := w.r.funds(t.Context(), held)
		if err != nil || f.Unread != -7*money.Unit || f.Unbooked != -7*money.Unit || f.OffSince == nil || f.Wrong != (i > 0) {
			t.Fatalf("%d: %+v %v", i, f, err)
		}
		if n := w.count("SELECT count(*) FROM notice WHERE dedupe_key LIKE 'stripe_funds:%'"); n != notices {
			t.Fatalf("%d: %d notices, want %d", i, n, notices)
		}
		w.Exec("UPDATE stripe_funds SET off_since = off_since - interval '31 minutes'")
		w.Exec("UPDATE notice SET dedupe_key = dedupe_key || '-earlier' WHERE dedupe_key LIKE 'stripe_funds:%'")
	}
	if f := funds(); f.OffSince != nil || f.Wrong || f.Unread != 0 {
		t.Fatalf("%+v", f)
	}
}

// Changes of Stripe's balance that nothing explains do not keep others from being matched.
func TestReconcile_SuspenseDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(`INSERT INTO stripe_balance (id, type, source, amount, fee, currency, keys, state, at, seen_at)
		SELECT 'txn_x' || n, 'charge', 'ch_x' || n, 0, 0, 'EUR', '{}', 'suspense', clock_timestamp() - interval '2 days',
		clock_timestamp() - interval '2 days'
		FROM generate_series(1, $1) n`, 2*reconcileRows)
	w.stripe.Balance.Stray("stripe_fee", "eur", -7)
	matched := 0
	for range 4 {
		matched += w.reconcile().Matched
	}
	if matched != 1 {
		t.Fatalf("%d changes were matched behind %d in suspense, want 1", matched, 2*reconcileRows)
	}
}
