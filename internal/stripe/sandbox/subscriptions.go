package sandbox

import (
	"net/http"
	"net/url"
	"time"
)

// subscription has a customer billed for what its price's meter counts, month by month.
type subscription struct {
	ID           string            `json:"id"`
	Object       string            `json:"object"`
	AutomaticTax automaticTaxOf    `json:"automatic_tax"`
	Anchor       int64             `json:"billing_cycle_anchor"`
	CancelAt     *int64            `json:"cancel_at"`
	Ending       bool              `json:"cancel_at_period_end"`
	CanceledAt   *int64            `json:"canceled_at"`
	Collection   string            `json:"collection_method"`
	Created      int64             `json:"created"`
	Currency     string            `json:"currency"`
	End          int64             `json:"current_period_end"`
	Start        int64             `json:"current_period_start"`
	Customer     string            `json:"customer"`
	Method       *string           `json:"default_payment_method"`
	Description  *string           `json:"description"`
	EndedAt      *int64            `json:"ended_at"`
	Items        list              `json:"items"`
	Latest       *string           `json:"latest_invoice"`
	Livemode     bool              `json:"livemode"`
	Metadata     map[string]string `json:"metadata"`
	StartDate    int64             `json:"start_date"`
	Status       string            `json:"status"` // active, past_due, canceled
	Price        string            `json:"x_price"`
	Item         string            `json:"x_item"`
	Periods      int               `json:"x_periods"` // that began since Anchor
}

type subscriptionItem struct {
	ID           string            `json:"id"`
	Object       string            `json:"object"`
	Created      int64             `json:"created"`
	Metadata     map[string]string `json:"metadata"`
	Price        *price            `json:"price"`
	Subscription string            `json:"subscription"`
	TaxRates     []any             `json:"tax_rates"`
}

type automaticTaxOf struct {
	Enabled bool `json:"enabled"`
}

// subscriptions bill customers by their meters.
type subscriptions struct {
	store    *store
	events   *events
	invoices *Invoices
}

func (subs *subscriptions) routes(f *front) {
	f.onPost("/v1/subscriptions", subs.create)
	f.onGet("/v1/subscriptions", func(r *http.Request) answer {
		return pageOf(&subs.store.Subscriptions, r, func(q url.Values, x *subscription) bool {
			state := q.Get("status")
			return (q.Get("customer") == "" || x.Customer == q.Get("customer")) &&
				(state == "all" || state == x.Status || state == "" && x.Status != "canceled")
		})
	})
	f.onGet("/v1/subscriptions/{id}", func(r *http.Request) answer {
		if x := subs.store.Subscriptions.get(r.PathValue("id")); x != nil {
			return ok(x)
		}
		return missing("subscription", r.PathValue("id"))
	})
	f.onPost("/v1/subscriptions/{id}", subs.update)
	f.onDelete("/v1/subscriptions/{id}", subs.cancel)
}

func (subs *subscriptions) create(_ *http.Request, form url.Values) answer {
	p, customer := subs.store.Prices.get(form.Get("items[0][price]")), form.Get("customer")
	switch {
	case subs.store.Customers.get(customer) == nil:
		return missing("customer", customer)
	case p == nil:
		return missing("price", form.Get("items[0][price]"))
	case p.Recurring == nil || p.Recurring.Meter == nil:
		return invalid("items[0][price]", "this imitation bills metered prices only")
	case form.Get("currency") != "" && form.Get("currency") != p.Currency:
		return invalid("currency", "The price is in another currency.")
	case form.Get("collection_method") != "" && form.Get("collection_method") != "charge_automatically":
		return invalid("collection_method", "this imitation charges automatically only")
	}
	now := subs.store.now()
	x := &subscription{
		ID:          newID("sub"),
		Object:      "subscription",
		Anchor:      now,
		Collection:  "charge_automatically",
		Created:     now,
		Currency:    p.Currency,
		Start:       now,
		Customer:    customer,
		Description: orNull(form.Get("description")),
		Metadata:    nested(form, "metadata"),
		StartDate:   now,
		Status:      "active",
		Price:       p.ID,
		Item:        newID("si"),
		Periods:     1,
	}
	x.End = monthsAfter(x.Anchor, 1)
	subs.itemsOf(x)
	subs.store.Subscriptions.put(x.ID, x)
	subs.events.emit("customer.subscription.created", x)
	subs.invoices.finalise(subs.invoices.ofPeriod(x, "subscription_create", now, now, now))
	return ok(x)
}

// itemsOf fills in the list of what is billed.
func (subs *subscriptions) itemsOf(x *subscription) {
	shown := *subs.store.Prices.Objects[x.Price]
	x.Items = listOf("/v1/subscription_items?subscription="+x.ID, subscriptionItem{
		ID:           x.Item,
		Object:       "subscription_item",
		Created:      x.Created,
		Metadata:     map[string]string{},
		Price:        &shown,
		Subscription: x.ID,
		TaxRates:     []any{},
	})
}

func (subs *subscriptions) update(r *http.Request, form url.Values) answer {
	x := subs.store.Subscriptions.get(r.PathValue("id"))
	switch {
	case x == nil:
		return missing("subscription", r.PathValue("id"))
	case x.Status == "canceled":
		return refused("A canceled subscription can only update its cancellation_details and metadata.")
	}
	switch form.Get("cancel_at_period_end") {
	case "true":
		now := subs.store.now()
		x.Ending, x.CancelAt, x.CanceledAt = true, &x.End, &now
	case "false":
		x.Ending, x.CancelAt, x.CanceledAt = false, nil, nil
	}
	subs.events.emit("customer.subscription.updated", x)
	return ok(x)
}

// cancel ends a subscription at once. What it has used is billed only if asked for; its drafts do not go on
// by themselves any more.
func (subs *subscriptions) cancel(r *http.Request, form url.Values) answer {
	x := subs.store.Subscriptions.get(r.PathValue("id"))
	if x == nil || x.Status == "canceled" {
		return missing("subscription", r.PathValue("id"))
	}
	subs.end(x)
	if form.Get("invoice_now") == "true" {
		subs.invoices.ofPeriod(x, "subscription_update", x.Start, subs.store.now(), subs.store.now())
	}
	for _, in := range subs.store.Invoices.Objects {
		if in.Subscription != nil && *in.Subscription == x.ID && (in.Status == "draft" || in.Status == "open") {
			in = subs.store.Invoices.get(in.ID)
			in.Advance, in.NextAttempt = false, nil
		}
	}
	return ok(x)
}

func (subs *subscriptions) end(x *subscription) {
	now := subs.store.now()
	x.Status, x.EndedAt = "canceled", &now
	if x.CanceledAt == nil {
		x.CanceledAt = &now
	}
	subs.events.emit("customer.subscription.deleted", x)
}

// monthsAfter is the moment n months after an anchor, on the anchor's day or the last of a month that is too short.
func monthsAfter(anchor int64, n int) int64 {
	t := time.Unix(anchor, 0).UTC()
	first := time.Date(t.Year(), t.Month()+time.Month(n), 1, t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
	last := first.AddDate(0, 1, -1).Day()
	return first.AddDate(0, 0, min(t.Day(), last)-1).Unix()
}

// turnPeriod ends a subscription's period: its invoice is made, and the next period begins, unless that was the last.
func (subs *subscriptions) turnPeriod(x *subscription, end int64) {
	subs.invoices.ofPeriod(x, "subscription_cycle", x.Start, end, end)
	if x.Ending {
		subs.end(x)
		return
	}
	x.Start = end
	if end == x.End {
		x.Periods++
	} else { // ended early: the next is a whole one
		x.Anchor, x.Periods = end, 1
	}
	x.End = monthsAfter(x.Anchor, x.Periods)
	subs.events.emit("customer.subscription.updated", x)
}
