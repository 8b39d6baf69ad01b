package payment

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// A reading of Stripe's balance that fails after its first page leaves no gap behind.
func TestAReadingThatFailsLeavesNoGap(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	began, err := s.DB.Q.DatabaseTime(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 120 { // two pages
		s.stripe.Stray("stripe_fee", "eur", -7)
	}
	broken := true
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken && r.URL.Path == "/v1/balance_transactions" && r.URL.Query().Get("starting_after") != "" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		s.stripe.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	c, err := stripe.New(stripe.Config{Key: "sk_test_x", WebhookSecret: secret, URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	if s.p, err = New(s.DB, outbox.New(s.DB, c, slog.New(slog.DiscardHandler)), Config{
		Currency:  "EUR",
		ReturnURL: "http://muster.test/billing",
		Sandbox:   true,
	}, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.p.Reconcile(t.Context()); err == nil {
		t.Fatal("the reading did not fail")
	}
	var past bool
	if err := s.DB.Pool.QueryRow(t.Context(), "SELECT through > $1 FROM stripe_read", began).Scan(&past); err != nil ||
		past {
		t.Fatal("the mark moved over a window that was not read to the end", err)
	}
	// A day later Stripe works again. What was not stored is older than the overlap.
	broken = false
	s.Exec("UPDATE stripe_read SET through = through + interval '1 day' WHERE through > clock_timestamp() - interval " +
		"'1 day'")
	if _, err := s.p.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := s.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM stripe_balance").Scan(&n); err != nil || n != 120 {
		t.Fatal(n, err)
	}
	s.level()
}
