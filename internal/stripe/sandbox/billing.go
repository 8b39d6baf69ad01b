package sandbox

import (
	"slices"
	"time"
)

// Times in an invoice's life.
const (
	draftFor = time.Hour // until Stripe finalises it by itself
	retryIn  = 3 * 24 * time.Hour
	retries  = 4 // attempts to charge the card in all
)

// Billing does what the clock brings, and what a person does to hurry it.
type Billing struct {
	store         *store
	events        *events
	invoices      *Invoices
	subscriptions *subscriptions
}

// Run does what the clock has brought: periods that are over get their invoice, drafts of an hour are final, open
// invoices are charged. Any change of the state does it too, and Webhooks.Push.
func (bl *Billing) Run() {
	bl.store.mu.Lock()
	defer bl.store.mu.Unlock()
	bl.run()
	bl.store.save()
}

func (bl *Billing) run() {
	now := bl.store.now()
	for _, id := range bl.store.Subscriptions.Order {
		for x := bl.store.Subscriptions.Objects[id]; x.Status != "canceled" && x.End <= now; {
			x = bl.store.Subscriptions.get(id)
			bl.subscriptions.turnPeriod(x, x.End)
		}
	}
	for _, id := range slices.Clone(bl.store.Invoices.Order) {
		in := bl.store.Invoices.Objects[id]
		if in.Status == "draft" && in.Advance && in.Created+int64(draftFor/time.Second) <= now {
			bl.invoices.finalise(bl.store.Invoices.get(id))
		}
		if in.Status == "open" && in.NextAttempt != nil && *in.NextAttempt <= now {
			bl.invoices.attempt(bl.store.Invoices.get(id), "")
		}
	}
}

// EndPeriod ends the running period of a customer's subscriptions now, as if the month were over; it returns the ids of
// the drafts.
func (bl *Billing) EndPeriod(customer string) (drafts []string) {
	bl.store.mu.Lock()
	defer bl.store.mu.Unlock()
	bl.run()
	now := bl.store.now()
	for _, id := range bl.store.Subscriptions.Order {
		if x := bl.store.Subscriptions.Objects[id]; x.Customer == customer && x.Status != "canceled" {
			bl.subscriptions.turnPeriod(bl.store.Subscriptions.get(id), now)
			drafts = append(drafts, *x.Latest)
		}
	}
	bl.store.save()
	return drafts
}

// HourOver finalises a draft now, as Stripe does when its hour is over.
func (bl *Billing) HourOver(invoiceID string) {
	bl.store.mu.Lock()
	defer bl.store.mu.Unlock()
	if in := bl.store.Invoices.get(invoiceID); in != nil && in.Status == "draft" {
		bl.invoices.finalise(in)
		bl.run()
		bl.store.save()
	}
}

// InvoiceByHand sends a customer an invoice, as a person can in Stripe's dashboard; the default card is charged for it.
func (bl *Billing) InvoiceByHand(customer, currency string, cents int64) (id string) {
	bl.store.mu.Lock()
	defer bl.store.mu.Unlock()
	in := bl.invoices.draft(customer, currency, "manual")
	x := &invoiceItem{
		ID:        newID("ii"),
		Object:    "invoiceitem",
		Amount:    cents,
		Currency:  currency,
		Customer:  customer,
		Date:      bl.store.now(),
		Discounts: []any{},
		Invoice:   &in.ID,
		Metadata:  map[string]string{},
		Period:    linePeriod{bl.store.now(), bl.store.now()},
		Quantity:  1,
	}
	bl.store.Items.put(x.ID, x)
	bl.events.emit("invoice.created", bl.invoices.shown(in))
	bl.invoices.finalise(in)
	bl.run()
	bl.store.save()
	return in.ID
}
