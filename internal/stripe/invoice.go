package stripe

import (
	"context"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v76"
)

// metaLine is the metadata key under which a line names what it was added for.
const metaLine = "line"

// States of an invoice.
const (
	InvoiceDraft         = "draft" // lines may be added; about an hour
	InvoiceOpen          = "open"  // final, to be paid
	InvoicePaid          = "paid"
	InvoiceVoid          = "void"
	InvoiceUncollectible = "uncollectible" // given up; it may be paid all the same
)

// Invoice is a bill of one period, in cents.
type Invoice struct {
	ID           string // in_…
	Number       string // empty while a draft
	Status       string
	Reason       string // subscription_create, subscription_cycle, subscription_update, manual, …
	Customer     string // cus_…
	Subscription string // sub_…; empty for one that was made by hand
	Org          string // from the subscription's metadata; empty for one that is not ours
	Currency     string // ISO 4217, upper case
	Total        int64
	Metered      int64 // of it, by the meter
	// StartingBalance is what the customer owed (positive) or had coming (negative) from earlier invoices, EndingBalance
	// what is carried on: an invoice of less than the least charge is paid by carrying it on.
	StartingBalance, EndingBalance int64
	AmountDue                      int64 // what is to be collected
	AmountPaid                     int64 // what was
	OutOfBand                      bool  // it was marked as paid in Stripe's dashboard: no money came through Stripe
	Lines                          []Line
	PeriodStart, PeriodEnd         time.Time // what the metered line counts
	CreatedAt                      time.Time
	DueAt                          time.Time // zero: at once
	NextAttempt                    time.Time // when the card is tried again; zero: it is not
	Attempts                       int       // to charge the card
	URL                            string    // where the payer sees and pays it; empty while a draft
	Payment                        string    // pi_…, once it is final and there is something to pay
}

// Line is one of an invoice.
type Line struct {
	ID          string
	Ref         string // from its metadata: what it was added for
	Description string
	Cents       int64
	Metered     bool
	Quantity    int64 // micro-units, of the metered one
}

// Invoice asks for the present state of an invoice with all its lines. While it is a draft its metered line still grows
// with what Stripe counts late.
func (c *Client) Invoice(ctx context.Context, id string) (Invoice, error) {
	params := &stripe.InvoiceParams{}
	params.Context = ctx
	in, err := c.api.Invoices.Get(id, params)
	if err != nil {
		return Invoice{}, failure(err)
	}
	return c.invoice(ctx, in)
}

// newestInvoices is how many invoices of a subscription Invoices reads: two years.
const newestInvoices = 24

// Invoices are the newest of a subscription's, newest first.
func (c *Client) Invoices(ctx context.Context, subscription string) (out []Invoice, err error) {
	params := &stripe.InvoiceListParams{Subscription: stripe.String(subscription)}
	params.Context = ctx
	params.Limit = stripe.Int64(newestInvoices)
	params.Single = true
	it := c.api.Invoices.List(params)
	for it.Next() {
		in, err := c.invoice(ctx, it.Invoice())
		if err != nil {
			return nil, err
		}
		out = append(out, in)
	}
	return out, failure(it.Err())
}

// InvoiceLine asks for an amount to be put on a draft, or on the customer's next invoice.
type InvoiceLine struct {
	Invoice     string `json:"invoice,omitempty"` // in_…; empty: the next one
	Customer    string `json:"customer"`          // cus_…
	Cents       int64  `json:"cents"`             // negative: taken off
	Currency    string `json:"currency"`          // ISO 4217, upper case
	Description string `json:"description"`
	Ref         string `json:"ref,omitempty"` // what it is for, kept as metadata; FindInvoiceLine looks for it
}

// AddInvoiceLine adds a line. An invoice that is no draft any more is an Error with outcome Rejected.
func (c *Client) AddInvoiceLine(ctx context.Context, key string, l InvoiceLine) error {
	params := &stripe.InvoiceItemParams{
		Customer:    stripe.String(l.Customer),
		Amount:      stripe.Int64(l.Cents),
		Currency:    stripe.String(strings.ToLower(l.Currency)),
		Description: stripe.String(l.Description),
	}
	if l.Invoice != "" {
		params.Invoice = stripe.String(l.Invoice)
	}
	if l.Ref != "" {
		params.AddMetadata(metaLine, l.Ref)
	}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	_, err := c.api.InvoiceItems.New(params)
	return failure(err)
}

// FindInvoiceLine reports whether an invoice has a line of ours. It finds what a lost answer to AddInvoiceLine has left
// behind.
func (c *Client) FindInvoiceLine(ctx context.Context, invoice, ref string) (bool, error) {
	params := &stripe.InvoiceItemListParams{Invoice: stripe.String(invoice)}
	params.Context = ctx
	params.Limit = stripe.Int64(100)
	it := c.api.InvoiceItems.List(params)
	for it.Next() {
		if it.InvoiceItem().Metadata[metaLine] == ref {
			return true, nil
		}
	}
	return false, failure(it.Err())
}

// FinaliseInvoice ends a draft: nothing is added to it any more, and Stripe collects it by itself. One that is final
// already is returned as it is.
func (c *Client) FinaliseInvoice(ctx context.Context, key, id string) (Invoice, error) {
	params := &stripe.InvoiceFinalizeInvoiceParams{AutoAdvance: stripe.Bool(true)}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	in, err := c.api.Invoices.FinalizeInvoice(id, params)
	return c.unless(ctx, id, in, err, InvoiceDraft)
}

// PayInvoice tries to collect an open invoice now, with a method or else the default one. One that is paid or void
// already is returned as it is; a refused card is an Error with outcome Declined.
func (c *Client) PayInvoice(ctx context.Context, key, id, method string) (Invoice, error) {
	params := &stripe.InvoicePayParams{OffSession: stripe.Bool(true)}
	if method != "" {
		params.PaymentMethod = stripe.String(method)
	}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	in, err := c.api.Invoices.Pay(id, params)
	return c.unless(ctx, id, in, err, InvoiceOpen, InvoiceUncollectible)
}

// GiveUpInvoice marks an open invoice as uncollectible: Stripe tries no card any more, and it may be paid all the same.
// One that is not open is returned as it is.
func (c *Client) GiveUpInvoice(ctx context.Context, key, id string) (Invoice, error) {
	params := &stripe.InvoiceMarkUncollectibleParams{}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	in, err := c.api.Invoices.MarkUncollectible(id, params)
	return c.unless(ctx, id, in, err, InvoiceOpen)
}

// VoidInvoice takes back an open invoice as if it had not been made. One that is not open is returned as it is.
func (c *Client) VoidInvoice(ctx context.Context, key, id string) (Invoice, error) {
	params := &stripe.InvoiceVoidInvoiceParams{}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	in, err := c.api.Invoices.VoidInvoice(id, params)
	return c.unless(ctx, id, in, err, InvoiceOpen, InvoiceUncollectible)
}

// unless reads the answer to a change of an invoice. A refusal of one that had left the states in which it can be
// changed so is the invoice as it is.
func (c *Client) unless(ctx context.Context, id string, in *stripe.Invoice, err error,
	states ...string) (Invoice, error) {
	e := As(failure(err))
	if e == nil {
		return c.invoice(ctx, in)
	}
	if e.Outcome != Rejected {
		return Invoice{}, e
	}
	now, asked := c.Invoice(ctx, id)
	if asked != nil {
		return Invoice{}, asked
	}
	for _, s := range states {
		if now.Status == s {
			return Invoice{}, e
		}
	}
	return now, nil
}

// invoice reads an invoice with all its lines: the object itself shows the first ten.
func (c *Client) invoice(ctx context.Context, in *stripe.Invoice) (Invoice, error) {
	at := func(n int64) (t time.Time) {
		if n != 0 {
			t = time.Unix(n, 0).UTC()
		}
		return t
	}
	out := Invoice{
		ID:              in.ID,
		Number:          in.Number,
		Status:          string(in.Status),
		Reason:          string(in.BillingReason),
		Currency:        strings.ToUpper(string(in.Currency)),
		Total:           in.Total,
		StartingBalance: in.StartingBalance,
		EndingBalance:   in.EndingBalance,
		AmountDue:       in.AmountDue,
		AmountPaid:      in.AmountPaid,
		OutOfBand:       in.PaidOutOfBand,
		PeriodStart:     at(in.PeriodStart),
		PeriodEnd:       at(in.PeriodEnd),
		CreatedAt:       at(in.Created),
		DueAt:           at(in.DueDate),
		NextAttempt:     at(in.NextPaymentAttempt),
		Attempts:        attempts(in),
		URL:             in.HostedInvoiceURL,
	}
	if in.Customer != nil {
		out.Customer = in.Customer.ID
	}
	if in.Subscription != nil {
		out.Subscription = in.Subscription.ID
	}
	if in.SubscriptionDetails != nil {
		out.Org = in.SubscriptionDetails.Metadata[metaOrg]
	}
	if in.PaymentIntent != nil {
		out.Payment = in.PaymentIntent.ID
	}
	add := func(l *stripe.InvoiceLineItem) {
		line := Line{
			ID:          l.ID,
			Ref:         l.Metadata[metaLine],
			Description: l.Description,
			Cents:       l.Amount,
			Metered: l.Type == stripe.InvoiceLineItemTypeSubscription && l.Price != nil && l.Price.Recurring != nil &&
				l.Price.Recurring.UsageType == stripe.PriceRecurringUsageTypeMetered,
		}
		if line.Metered {
			line.Quantity = l.Quantity
			out.Metered += l.Amount
		}
		out.Lines = append(out.Lines, line)
	}
	if in.Lines == nil {
		return out, nil
	}
	if !in.Lines.HasMore {
		for _, l := range in.Lines.Data {
			add(l)
		}
		return out, nil
	}
	params := &stripe.InvoiceListLinesParams{Invoice: stripe.String(in.ID)}
	params.Context = ctx
	params.Limit = stripe.Int64(100)
	it := c.api.Invoices.ListLines(params)
	for it.Next() {
		add(it.InvoiceLineItem())
	}
	return out, failure(it.Err())
}

// attempts is how often collecting an invoice was tried: at least once where Stripe reports an attempt, whatever it
// counts. An invoice of a customer without any card may have been tried and counted as never attempted.
func attempts(in *stripe.Invoice) int {
	n := int(in.AttemptCount)
	if in.Attempted && in.Status != stripe.InvoiceStatusDraft {
		n = max(1, n)
	}
	return n
}
