package stripe

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v76"
)

// SubscribeRequest has a customer billed monthly, afterwards, for what the meter counted.
type SubscribeRequest struct {
	Customer string `json:"customer"` // cus_…
	Org      string `json:"org"`      // prefixed id, kept as metadata
	Currency string `json:"currency"` // ISO 4217, upper case
}

// Subscription is a customer's being billed.
type Subscription struct {
	ID         string // sub_…
	Org        string // from its metadata; empty for one that is not ours
	Customer   string // cus_…
	Start, End time.Time
	Status     string // active, past_due, unpaid, canceled, incomplete, …
	Ending     bool   // it ends with its period
}

// Subscribe starts billing: the first period begins now, and a first invoice of nothing is made and paid. Later ones
// are charged to the customer's default card (SetDefaultMethod). Without the price that SetUpStripe makes it is an
// Error with outcome Later.
func (c *Client) Subscribe(ctx context.Context, key string, r SubscribeRequest) (Subscription, error) {
	p, err := c.FindPrice(ctx, UsagePrice(r.Currency))
	if err != nil {
		return Subscription{}, err
	}
	if p.ID == "" {
		return Subscription{}, &Error{
			Outcome: Later,
			Code:    CodeNoPrice,
			Message: fmt.Sprintf("there is no price %s at Stripe: run muster server stripe-setup", UsagePrice(r.Currency)),
		}
	}
	params := &stripe.SubscriptionParams{
		Customer:         stripe.String(r.Customer),
		Currency:         stripe.String(strings.ToLower(r.Currency)),
		Description:      stripe.String("GPU cluster usage"),
		Items:            []*stripe.SubscriptionItemsParams{{Price: stripe.String(p.ID)}},
		CollectionMethod: stripe.String(string(stripe.SubscriptionCollectionMethodChargeAutomatically)),
		OffSession:       stripe.Bool(true),
		PaymentSettings:  &stripe.SubscriptionPaymentSettingsParams{PaymentMethodTypes: stripe.StringSlice([]string{"card"})},
	}
	params.AddMetadata(metaOrg, r.Org)
	params.Context = ctx
	params.SetIdempotencyKey(key)
	s, err := c.api.Subscriptions.New(params)
	if err != nil {
		return Subscription{}, failure(err)
	}
	return subscription(s), nil
}

// Subscription asks for the present state of a subscription.
func (c *Client) Subscription(ctx context.Context, id string) (Subscription, error) {
	params := &stripe.SubscriptionParams{}
	params.Context = ctx
	s, err := c.api.Subscriptions.Get(id, params)
	if err != nil {
		return Subscription{}, failure(err)
	}
	return subscription(s), nil
}

// FindSubscription looks for an org's subscription that was not cancelled; nil when there is none. It finds what a lost
// answer to Subscribe has left behind.
func (c *Client) FindSubscription(ctx context.Context, customer, org string) (*Subscription, error) {
	params := &stripe.SubscriptionListParams{Customer: stripe.String(customer)}
	params.Context = ctx
	params.Limit = stripe.Int64(100)
	it := c.api.Subscriptions.List(params)
	for it.Next() {
		if s := it.Subscription(); s.Metadata[metaOrg] == org && s.Status != stripe.SubscriptionStatusCanceled {
			out := subscription(s)
			return &out, nil
		}
	}
	return nil, failure(it.Err())
}

// ResumeSubscription takes back that a subscription ends with its period. One that has ended is an Error with outcome
// Rejected.
func (c *Client) ResumeSubscription(ctx context.Context, key, id string) (Subscription, error) {
	params := &stripe.SubscriptionParams{CancelAtPeriodEnd: stripe.Bool(false)}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	s, err := c.api.Subscriptions.Update(id, params)
	if err != nil {
		return Subscription{}, failure(err)
	}
	return subscription(s), nil
}

// CancelSubscription ends billing: now, with a last invoice of what was used, or else when the period ends, with its
// invoice. One that is cancelled already is no error. Stripe does not finalise by itself the drafts of a subscription
// that was cancelled now: FinaliseInvoice does.
func (c *Client) CancelSubscription(ctx context.Context, key, id string, invoiceNow bool) error {
	if !invoiceNow {
		params := &stripe.SubscriptionParams{CancelAtPeriodEnd: stripe.Bool(true)}
		params.Context = ctx
		params.SetIdempotencyKey(key)
		_, err := c.api.Subscriptions.Update(id, params)
		return c.ifCancelled(ctx, id, failure(err))
	}
	params := &stripe.SubscriptionCancelParams{InvoiceNow: stripe.Bool(true), Prorate: stripe.Bool(false)}
	params.Context = ctx
	params.SetIdempotencyKey(key) // Stripe takes no notice of it here: a second cancellation finds nothing to cancel
	_, err := c.api.Subscriptions.Cancel(id, params)
	return c.ifCancelled(ctx, id, failure(err))
}

// ifCancelled forgives a refusal by a subscription that has ended.
func (c *Client) ifCancelled(ctx context.Context, id string, err error) error {
	if e := As(err); e == nil || e.Outcome != Missing && e.Outcome != Rejected {
		return err
	}
	if s, asked := c.Subscription(ctx, id); asked != nil {
		if e := As(asked); e != nil && e.Outcome != Missing {
			return asked // the outcome is unknown
		}
		return err
	} else if s.Status != string(stripe.SubscriptionStatusCanceled) {
		return err
	}
	return nil
}

func subscription(s *stripe.Subscription) Subscription {
	out := Subscription{
		ID:     s.ID,
		Org:    s.Metadata[metaOrg],
		Start:  time.Unix(s.CurrentPeriodStart, 0).UTC(),
		End:    time.Unix(s.CurrentPeriodEnd, 0).UTC(),
		Status: string(s.Status),
		Ending: s.CancelAtPeriodEnd,
	}
	if s.Customer != nil {
		out.Customer = s.Customer.ID
	}
	return out
}
