package stripe

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v76"

	"github.com/musterhq/muster/internal/money"
)

// UsageMeter is the name of the events that report usage. Their value is whole micro-units of the currency.
const UsageMeter = "muster_usage"

// Codes of ours for what stripe-setup has not made yet.
const (
	CodeNoMeter = "no_meter"
	CodeNoPrice = "no_price"
)

// UsagePrice is the lookup key of the price of usage in a currency.
func UsagePrice(currency string) string { return "muster_usage_" + strings.ToLower(currency) }

// UsageEvent reports what a customer used.
type UsageEvent struct {
	Identifier string      `json:"identifier"` // at most 100 bytes; Stripe counts it once in at least 24 h
	Customer   string      `json:"customer"`   // cus_…
	Value      money.Micro `json:"value"`      // micro-units, not negative
	At         time.Time   `json:"at"`         // when; at most 35 days ago, not more than 5 min ahead
}

// SendUsage reports usage. An event whose identifier Stripe knows already is no error: it counts once. One that Stripe
// will not take (too old, no such customer) is an Error with outcome Rejected.
func (c *Client) SendUsage(ctx context.Context, e UsageEvent) error {
	params := &stripe.BillingMeterEventParams{
		EventName: stripe.String(UsageMeter), Identifier: stripe.String(e.Identifier), Timestamp: stripe.Int64(e.At.Unix()),
		Payload: map[string]string{"stripe_customer_id": e.Customer, "value": strconv.FormatInt(int64(e.Value), 10)},
	}
	params.Context = ctx
	params.SetIdempotencyKey("usage:" + e.Identifier)
	_, err := c.api.BillingMeterEvents.New(params)
	if f := As(failure(err)); f != nil {
		if f.Outcome == Rejected && strings.Contains(f.Message, "already exists with identifier") {
			return nil // Stripe has no code of its own for it
		}
		return f
	}
	return nil
}

// CancelUsage takes an event back, within 24 h of its sending.
func (c *Client) CancelUsage(ctx context.Context, key, identifier string) error {
	params := &stripe.BillingMeterEventAdjustmentParams{
		EventName: stripe.String(UsageMeter),
		Type:      stripe.String(string(stripe.BillingMeterEventAdjustmentTypeCancel)),
		Cancel:    &stripe.BillingMeterEventAdjustmentCancelParams{Identifier: stripe.String(identifier)},
	}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	_, err := c.api.BillingMeterEventAdjustments.New(params)
	return failure(err)
}

// Usage is what Stripe has counted of a customer from one moment until before another; both are cut to whole minutes.
// Stripe counts what it was sent some minutes late.
func (c *Client) Usage(ctx context.Context, customer string, from, to time.Time) (money.Micro, error) {
	m, err := c.FindMeter(ctx, UsageMeter)
	if err != nil {
		return 0, err
	}
	if m.ID == "" {
		return 0, &Error{
			Outcome: Missing,
			Code:    CodeNoMeter,
			Message: "there is no active meter " + UsageMeter + " at Stripe",
		}
	}
	return c.UsageOf(ctx, m, customer, from, to)
}

// UsageOf is Usage by a meter that is known.
func (c *Client) UsageOf(ctx context.Context, m Meter, customer string, from,
	to time.Time) (sum money.Micro, err error) {
	params := &stripe.BillingMeterEventSummaryListParams{ID: stripe.String(m.ID), Customer: stripe.String(customer),
		StartTime: stripe.Int64(from.Truncate(time.Minute).Unix()), EndTime: stripe.Int64(to.Truncate(time.Minute).Unix())}
	params.Context = ctx
	it := c.api.BillingMeterEventSummaries.List(params)
	for it.Next() {
		v := it.BillingMeterEventSummary().AggregatedValue
		if v != math.Trunc(v) || math.Abs(v) >= 1<<53 { // beyond, the library's float is not exact
			return 0, fmt.Errorf("the usage %v of %s is not a whole number of micro-units", v, customer)
		}
		sum += money.Micro(v)
	}
	return sum, failure(it.Err())
}
