package payment

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/stripe"
)

// What the platform keeps at Stripe apart from its customers, by names that are looked up.
const (
	usageProduct = "muster_usage"
	microCents   = 0.0001 // cents in a micro-unit
)

// WebhookEvents are the events that the platform subscribes to, sorted.
var WebhookEvents = []string{
	"charge.dispute.closed", "charge.dispute.created", "charge.dispute.funds_reinstated", "charge.dispute.funds_withdrawn",
	"charge.dispute.updated", "charge.refund.updated",
	"checkout.session.completed", "checkout.session.expired", "customer.subscription.deleted",
	"customer.subscription.updated",
	"invoice.created", "invoice.finalized", "invoice.marked_uncollectible", "invoice.paid",
	"invoice.payment_action_required", "invoice.payment_failed", "invoice.voided",
	"payment_intent.canceled", "payment_intent.payment_failed", "payment_intent.processing",
	"payment_intent.requires_action", "payment_intent.succeeded",
	"radar.early_fraud_warning.created", "radar.early_fraud_warning.updated", "refund.created", "refund.updated",
	"setup_intent.succeeded", "transfer.created", "transfer.reversed",
}

// ConnectEvents are those of operators' accounts. Their endpoint must have no others: by that it is known.
var ConnectEvents = []string{"account.application.deauthorized", "account.updated", "capability.updated"}

// StripeSetup is what is at Stripe after SetUpStripe.
type StripeSetup struct {
	Meter, Product, Price string
	Endpoint, Connect     string   // for events at our own account, and at operators'
	Made                  []string // which of them were not there before: "meter", "product", …
	Changed               []string // "endpoint", "connect": it was enabled, or more of its events were
	Secrets               []string // of endpoints that were made just now; never shown again
	Warnings              []string // what an operator has to look at
}

// SetUpStripe makes what the platform needs at Stripe and is not there yet: a meter, a product and its price per
// micro-unit for usage that is paid afterwards, and the webhook endpoints. Run it as often as you like. What differs
// from what is needed and cannot be changed by itself is a Conflict, or a warning where it does no harm.
func SetUpStripe(ctx context.Context, c *stripe.Client, currency, webhookURL string) (s StripeSetup, err error) {
	for _, step := range []func() error{
		func() error { return s.meter(ctx, c) },
		func() error { return s.price(ctx, c, currency) },
		func() (err error) {
			s.Endpoint, err = s.endpoint(ctx, c, "endpoint", webhookURL, WebhookEvents)
			return err
		},
		func() (err error) {
			s.Connect, err = s.endpoint(ctx, c, "connect", webhookURL, ConnectEvents)
			if e := stripe.As(err); e != nil && e.Outcome == stripe.Rejected {
				s.Warnings = append(s.Warnings, "the endpoint for operators' accounts was refused; switch Connect on in "+
					"Stripe's dashboard and run this again: "+e.Message)
				return nil
			}
			return err
		},
	} {
		if err := step(); err != nil {
			return s, err
		}
	}
	return s, nil
}

// setupKey returns a key for one call. It need not be kept: what a call with a lost answer made is found by the next
// run.
func setupKey() string { return "stripe-setup:" + rand.Text() }

func (s *StripeSetup) meter(ctx context.Context, c *stripe.Client) error {
	m, err := c.FindMeter(ctx, stripe.UsageMeter)
	if err == nil && m.ID == "" {
		if m, err = c.CreateMeter(ctx, setupKey(), stripe.UsageMeter, "Muster usage, micro-units"); err == nil {
			s.Made = append(s.Made, "meter")
		}
	}
	if err != nil {
		return fmt.Errorf("set up the meter: %w", err)
	}
	s.Meter = m.ID
	return nil
}

func (s *StripeSetup) price(ctx context.Context, c *stripe.Client, currency string) error {
	there, err := c.HasProduct(ctx, usageProduct)
	if err == nil && !there {
		if err = c.CreateProduct(ctx, setupKey(), usageProduct, "GPU cluster usage"); err == nil {
			s.Made = append(s.Made, "product")
		}
	}
	if err != nil {
		return fmt.Errorf("set up the product: %w", err)
	}
	s.Product = usageProduct
	want := stripe.Price{Meter: s.Meter, Currency: strings.ToUpper(currency), Cents: microCents}
	p, err := c.FindPrice(ctx, stripe.UsagePrice(currency))
	if err == nil && p.ID == "" {
		if p, err = c.CreatePrice(ctx, setupKey(), stripe.UsagePrice(currency), usageProduct, want); err == nil {
			s.Made = append(s.Made, "price")
		}
	}
	if err != nil {
		return fmt.Errorf("set up the price: %w", err)
	}
	if want.ID = p.ID; p != want {
		return fault.New(fault.Conflict, "the price %s at Stripe, lookup key %s, is not one ten-thousandth of a %s cent "+
			"per unit of the meter %s: give its lookup key up in Stripe's dashboard, then run this again",
			p.ID, stripe.UsagePrice(currency), want.Currency, s.Meter)
	}
	s.Price = p.ID
	return nil
}

// endpoint makes one of the two endpoints receive the events.
func (s *StripeSetup) endpoint(ctx context.Context, c *stripe.Client, kind, url string,
	events []string) (id string, err error) {
	e, err := c.FindEndpoint(ctx, url, kind == "connect")
	if err != nil {
		return "", fmt.Errorf("set up webhook %s: %w", kind, err)
	}
	if e.ID == "" {
		if e, err = c.CreateEndpoint(ctx, setupKey(), url, events, kind == "connect"); err != nil {
			return "", fmt.Errorf("set up webhook %s: %w", kind, err)
		}
		s.Made, s.Secrets = append(s.Made, kind), append(s.Secrets, e.Secret)
		return e.ID, nil
	}
	if e.APIVersion != stripe.APIVersion {
		was := e.APIVersion
		if was == "" {
			was = "the account's default"
		}
		s.Warnings = append(s.Warnings, fmt.Sprintf("the endpoint %s is set to API version %s instead of %s, which "+
			"Stripe does not allow to be changed: it does no harm; to fix it, delete the endpoint in Stripe's dashboard "+
			"and run this again",
			e.ID, was, stripe.APIVersion))
	}
	all := append(slices.Clone(e.Events), events...) // an admin may have added events
	slices.Sort(all)
	all = slices.Compact(all)
	if slices.Contains(e.Events, "*") { // everything
		all = e.Events
	}
	if e.Enabled && slices.Equal(all, e.Events) {
		return e.ID, nil
	}
	if err := c.EnableEndpoint(ctx, setupKey(), e.ID, all); err != nil {
		return "", fmt.Errorf("set up webhook %s: %w", kind, err)
	}
	s.Changed = append(s.Changed, kind)
	return e.ID, nil
}
