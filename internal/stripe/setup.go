package stripe

import (
	"context"
	"slices"
	"strings"

	"github.com/stripe/stripe-go/v76"
)

// APIVersion is the version of Stripe's API that this client uses.
const APIVersion = stripe.APIVersion

// Meter adds up what is reported of each customer.
type Meter struct {
	ID    string // mtr_…
	Event string // name of the events it adds up
}

// FindMeter is the active meter of a kind of event; the zero value: there is none.
func (c *Client) FindMeter(ctx context.Context, event string) (Meter, error) {
	params := &stripe.BillingMeterListParams{Status: stripe.String(string(stripe.BillingMeterStatusActive))}
	params.Context = ctx
	params.Limit = stripe.Int64(100)
	it := c.api.BillingMeters.List(params)
	for it.Next() {
		if m := it.BillingMeter(); m.EventName == event {
			return Meter{m.ID, m.EventName}, nil
		}
	}
	return Meter{}, failure(it.Err())
}

// CreateMeter makes a meter that sums the values of events with this name, by customer.
func (c *Client) CreateMeter(ctx context.Context, key, event, name string) (Meter, error) {
	params := &stripe.BillingMeterParams{
		DisplayName: stripe.String(name),
		EventName:   stripe.String(event),
		DefaultAggregation: &stripe.BillingMeterDefaultAggregationParams{
			Formula: stripe.String(string(stripe.BillingMeterDefaultAggregationFormulaSum)),
		},
		CustomerMapping: &stripe.BillingMeterCustomerMappingParams{
			EventPayloadKey: stripe.String("stripe_customer_id"),
			Type:            stripe.String(string(stripe.BillingMeterCustomerMappingTypeByID)),
		},
		ValueSettings: &stripe.BillingMeterValueSettingsParams{EventPayloadKey: stripe.String("value")},
	}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	m, err := c.api.BillingMeters.New(params)
	if err != nil {
		return Meter{}, failure(err)
	}
	return Meter{m.ID, m.EventName}, nil
}

// HasProduct reports whether there is a product with this id.
func (c *Client) HasProduct(ctx context.Context, id string) (bool, error) {
	params := &stripe.ProductParams{}
	params.Context = ctx
	_, err := c.api.Products.Get(id, params)
	if e := As(failure(err)); e != nil && e.Outcome == Missing {
		return false, nil
	}
	return err == nil, failure(err)
}

// CreateProduct makes a product under an id of ours.
func (c *Client) CreateProduct(ctx context.Context, key, id, name string) error {
	params := &stripe.ProductParams{ID: stripe.String(id), Name: stripe.String(name)}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	_, err := c.api.Products.New(params)
	return failure(err)
}

// Price is what a unit of a meter costs.
type Price struct {
	ID       string // price_…
	Meter    string // mtr_…
	Currency string // ISO 4217, upper case
	// Cents of a unit. A float is all that the library has; it is exact for the powers of ten we use, as text with twelve
	// decimals.
	Cents float64
}

// FindPrice is the active price under a lookup key; the zero value: there is none.
func (c *Client) FindPrice(ctx context.Context, lookup string) (Price, error) {
	params := &stripe.PriceListParams{LookupKeys: stripe.StringSlice([]string{lookup}), Active: stripe.Bool(true)}
	params.Context = ctx
	it := c.api.Prices.List(params)
	if it.Next() {
		return price(it.Price()), nil
	}
	return Price{}, failure(it.Err())
}

// CreatePrice makes a monthly price of a product, metered, under a lookup key.
func (c *Client) CreatePrice(ctx context.Context, key, lookup, product string, p Price) (Price, error) {
	params := &stripe.PriceParams{
		Currency:          stripe.String(strings.ToLower(p.Currency)),
		Product:           stripe.String(product),
		LookupKey:         stripe.String(lookup),
		UnitAmountDecimal: stripe.Float64(p.Cents),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String(string(stripe.PriceRecurringIntervalMonth)),
			UsageType: stripe.String(string(stripe.PriceRecurringUsageTypeMetered)), Meter: stripe.String(p.Meter)},
	}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	made, err := c.api.Prices.New(params)
	if err != nil {
		return Price{}, failure(err)
	}
	return price(made), nil
}

func price(p *stripe.Price) Price {
	out := Price{ID: p.ID, Currency: strings.ToUpper(string(p.Currency)), Cents: p.UnitAmountDecimal}
	if p.Recurring != nil {
		out.Meter = p.Recurring.Meter
	}
	return out
}

// Endpoint is where Stripe sends events.
type Endpoint struct {
	ID         string // we_…
	URL        string
	APIVersion string   // empty: the account's default
	Events     []string // sorted
	Enabled    bool
	Connect    bool   // it is for what happens at connected accounts
	Secret     string // whsec_…; only of one that was made just now
}

// FindEndpoint is the oldest endpoint with this address, for what happens at connected accounts or else at our own; the
// zero value: there is none.
func (c *Client) FindEndpoint(ctx context.Context, url string, connect bool) (found Endpoint, err error) {
	params := &stripe.WebhookEndpointListParams{}
	params.Context = ctx
	params.Limit = stripe.Int64(100)
	it := c.api.WebhookEndpoints.List(params)
	for it.Next() {
		if e := webhookEndpoint(it.WebhookEndpoint()); e.URL == url && e.Connect == connect {
			found = e
		}
	}
	return found, failure(it.Err())
}

// CreateEndpoint makes an endpoint for events in this client's API version. Its answer has the secret; no other has.
func (c *Client) CreateEndpoint(ctx context.Context, key, url string, events []string, connect bool) (Endpoint, error) {
	params := &stripe.WebhookEndpointParams{
		URL:           stripe.String(url),
		EnabledEvents: stripe.StringSlice(events),
		APIVersion:    stripe.String(APIVersion),
		Description:   stripe.String("Muster"),
	}
	if connect {
		params.Connect = stripe.Bool(true)
	}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	e, err := c.api.WebhookEndpoints.New(params)
	if err != nil {
		return Endpoint{}, failure(err)
	}
	return webhookEndpoint(e), nil
}

// EnableEndpoint has an endpoint receive these events, and no others.
func (c *Client) EnableEndpoint(ctx context.Context, key, id string, events []string) error {
	params := &stripe.WebhookEndpointParams{EnabledEvents: stripe.StringSlice(events), Disabled: stripe.Bool(false)}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	_, err := c.api.WebhookEndpoints.Update(id, params)
	return failure(err)
}

func webhookEndpoint(e *stripe.WebhookEndpoint) Endpoint {
	out := Endpoint{
		ID:         e.ID,
		URL:        e.URL,
		APIVersion: e.APIVersion,
		Events:     slices.Clone(e.EnabledEvents),
		Enabled:    e.Status == "enabled",
		Secret:     e.Secret,
	}
	slices.Sort(out.Events)
	// Stripe does not show which kind an endpoint is of. Ours for connected accounts receives events about accounts only.
	out.Connect = len(out.Events) > 0 && !slices.ContainsFunc(out.Events,
		func(e string) bool { return !strings.HasPrefix(e, "account.") && !strings.HasPrefix(e, "capability.") })
	return out
}
