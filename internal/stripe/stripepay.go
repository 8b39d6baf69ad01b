// Package stripe is the only door to Stripe: the few calls we make, and the few facts we take from the answers.
//
// What always holds:
//   - Every call that changes something carries the caller's own idempotency key, which the caller has written down
//     before; the library's own retries are off, because the caller that stored the key retries with it. (A POST of
//     this library without parameters carries no key and is still retried.)
//   - An error shows whether the request certainly had no effect (Declined, Rejected, Later) or whether that is unknown
//     (Unknown): only then the same key must be used again.
//   - An event is believed only with a fresh signature, and only as far as its id, type and object id go.
//
// Amounts are whole cents. The package has no state but its connections; the URL may be a fake's (package sandbox).
package stripe

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/client"
)

// Config configures a Client.
type Config struct {
	Key string // sk_… or rk_…; secret
	// WebhookSecret is whsec_…; secret. Several, separated by commas, while one takes the place of another: an event
	// signed with any of them is believed.
	WebhookSecret string
	URL           string        // of the API; empty: Stripe's own
	Timeout       time.Duration // of one call; 0 = 30 s
	// Rate is how many calls are made per second; 0 = 40 with a live key of Stripe's, 10 with a test key, no limit at a
	// URL of one's own.
	Rate float64
	// BackOff is how long no call is made after Stripe answered 429, and doubles while it does; 0 = 1 s, none at a URL of
	// one's own.
	BackOff time.Duration
}

// Client calls Stripe's API. It is safe for concurrent use.
type Client struct {
	api     *client.API
	secrets []string
	limit   *limiter
}

// New checks the configuration; it connects to nothing.
func New(cfg Config) (*Client, error) {
	switch {
	case !strings.HasPrefix(cfg.Key, "sk_") && !strings.HasPrefix(cfg.Key, "rk_"):
		return nil, errors.New("the Stripe key must begin with sk_ or rk_")
	}
	secrets, err := webhookSecrets(cfg.WebhookSecret)
	if err != nil {
		return nil, err
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	limit := newLimiter(cfg)
	backend := &stripe.BackendConfig{
		EnableTelemetry: stripe.Bool(false),
		HTTPClient:      &http.Client{Timeout: cfg.Timeout, Transport: limit},
		// errors are returned; its own log has no place here
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
		MaxNetworkRetries: stripe.Int64(0),
	}
	if cfg.URL != "" {
		u, err := url.Parse(cfg.URL)
		if err != nil || u.Host == "" {
			return nil, errors.New("the Stripe URL cannot be read")
		}
		backend.URL = stripe.String(cfg.URL)
	}
	api := stripe.GetBackendWithConfig(stripe.APIBackend, backend)
	return &Client{client.New(cfg.Key, &stripe.Backends{API: api, Connect: api, Uploads: api}), secrets, limit}, nil
}

func webhookSecrets(s string) (out []string, err error) {
	for _, one := range strings.Split(s, ",") {
		if one = strings.TrimSpace(one); one == "" {
			return nil, errors.New("the Stripe webhook secret is missing")
		}
		out = append(out, one)
	}
	return out, nil
}
