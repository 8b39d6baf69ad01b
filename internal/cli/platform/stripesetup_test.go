package platform

import (
	"github.com/musterhq/muster/internal/server"

	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/sandbox"
)

func TestStripeSetupShowsTheSecretOnce(t *testing.T) {
	t.Parallel()
	fake, err := sandbox.New(sandbox.Config{WebhookSecret: "w"})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(fake)
	t.Cleanup(srv.Close)
	c, err := stripe.New(stripe.Config{Key: "sk_test_1", WebhookSecret: "none", URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{Currency: "EUR", PublicURL: "https://muster.test/"}
	var first, second bytes.Buffer
	if err := stripeSetup(t.Context(), c, cfg, &first); err != nil {
		t.Fatal(err)
	}
	if err := stripeSetup(t.Context(), c, cfg, &second); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(first.String(), " made\n"); n != 5 ||
		!strings.Contains(first.String(), "\nMUSTER_STRIPE_WEBHOOK_SECRET=whsec_") {
		t.Error(first.String())
	}
	if n := strings.Count(second.String(), " is there\n"); n != 5 || strings.Contains(second.String(), "whsec_") ||
		!strings.Contains(second.String(), "reveal") {
		t.Error(second.String())
	}
}
