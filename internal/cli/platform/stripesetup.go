package platform

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/server"
	"github.com/musterhq/muster/internal/stripe"
)

// stripeSetupCommand makes what the platform needs at Stripe.
func stripeSetupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stripe-setup",
		Short: "Create what the platform needs at Stripe: webhook endpoint, meter, price",
		Long: `Make what the platform needs at Stripe and is not there yet: the webhook endpoints, and a meter with
its price per micro-unit of usage. Run it as often as you like: what is there is found again.

It needs MUSTER_STRIPE_KEY, MUSTER_PUBLIC_URL and MUSTER_CURRENCY, and prints the signing secrets of endpoints that it
makes. It is printed once: Stripe does not return it again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadServerConfig(cmd)
			if err != nil {
				return err
			}
			var bad fault.Fields
			if cfg.Sandbox() {
				bad.Add("MUSTER_STRIPE_KEY", "is not set: the sandbox needs no setting up")
			}
			if !strings.HasPrefix(cfg.PublicURL, "https://") && !strings.HasPrefix(cfg.PublicURL, "http://") {
				bad.Add("MUSTER_PUBLIC_URL", "is not set to the platform's http(s) address, where Stripe sends its events")
			}
			if err := money.CheckCurrency(cfg.Currency); err != nil {
				bad.Add("MUSTER_CURRENCY", "%v", err)
			}
			if err := bad.Err(); err != nil {
				return err
			}
			// No event is received here: any secret will do.
			c, err := stripe.New(stripe.Config{Key: string(cfg.StripeKey), WebhookSecret: "none"})
			if err != nil {
				return fault.InvalidField("MUSTER_STRIPE_KEY", "%s", err)
			}
			return stripeSetup(cmd.Context(), c, cfg, cmd.OutOrStdout())
		},
	}
}

func stripeSetup(ctx context.Context, c *stripe.Client, cfg server.Config, out io.Writer) error {
	s, err := payment.SetUpStripe(ctx, c, cfg.Currency, strings.TrimSuffix(cfg.PublicURL, "/")+"/stripe/webhook")
	if err != nil {
		return err
	}
	for _, x := range []struct{ name, what, id string }{
		{"meter", "Meter", s.Meter}, {"product", "Product", s.Product}, {"price", "Price", s.Price},
		{"endpoint", "Webhook", s.Endpoint}, {"connect", "Connect webhook", s.Connect},
	} {
		state := "is there"
		switch {
		case x.id == "":
			state = "could not be made"
		case slices.Contains(s.Made, x.name):
			state = "made"
		case slices.Contains(s.Changed, x.name):
			state = "is there; it was enabled for all events we need"
		}
		fmt.Fprintf(out, "%-15s %s %s\n", x.what, x.id, state)
	}
	for _, w := range s.Warnings {
		fmt.Fprintln(out, "warning:", w)
	}
	switch {
	case len(s.Secrets) > 0:
		fmt.Fprintf(out, "\nShown this once; put it into the environment of every replica (with the secret of the other "+
			"endpoint, separated by a\ncomma, where only one was made):\n\nMUSTER_STRIPE_WEBHOOK_SECRET=%s\n",
			strings.Join(s.Secrets, ","))
	case cfg.StripeWebhookSecret == "":
		fmt.Fprintln(out, "\nMUSTER_STRIPE_WEBHOOK_SECRET is not set: reveal the endpoints' signing secrets in Stripe's "+
			"dashboard.")
	}
	return nil
}
