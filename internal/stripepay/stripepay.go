// Package stripepay is the only door to Stripe.
package stripepay

import (
	"net/http"
)

// Config says how to reach Stripe.
type Config struct {
	Key           string // sk_…; secret
	WebhookSecret string // whsec_…; secret
	URL           string // of the API; empty: Stripe's own
	HTTP          *http.Client
}

// Client speaks to Stripe. Safe for concurrent use.
type Client struct{ cfg Config }

// New checks the configuration; it connects to nothing.
func New(cfg Config) (*Client, error) { return &Client{cfg}, nil }
