package payment

import (
	"context"
	"encoding/json"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// billingParams are the frozen parameters of the rows that bill, but for usage.
type billingParams struct {
	Org          id.Org     `json:"org"`
	Subscription string     `json:"subscription,omitempty"`
	Now          bool       `json:"now,omitempty"`
	Invoice      string     `json:"invoice,omitempty"`
	Lines        []BillLine `json:"lines,omitempty"`
}

type usageParams struct {
	Org        id.Org      `json:"org"`
	Identifier string      `json:"identifier"`
	Value      money.Micro `json:"value"`
	At         time.Time   `json:"at"`
}

// billed is what the senders of rows that bill share.
type billed struct{ *Invoices }

// Refused passes a refusal to the biller.
func (p billed) Refused(ctx context.Context, tx *db.Tx, row outbox.Row, why *stripe.Error) error {
	return p.biller.Refused(ctx, tx, row.Kind, row.Ref, why)
}

// read returns a row's parameters, and its org's customer and default card ("": none).
func (p billed) read(ctx context.Context, row outbox.Row) (b billingParams, customer, method string, err error) {
	if err := json.Unmarshal(row.Params, &b); err != nil {
		return b, "", "", err
	}
	customer, method, err = p.customers.of(ctx, b.Org)
	return b, customer, method, err
}

// useCard sets at Stripe which card pays the customer's invoices. If Stripe does not have the card any more, it does
// nothing: the invoice is open until another card pays it.
func (i *Invoices) useCard(ctx context.Context, client *stripe.Client, key, customer, method string) error {
	if method == "" {
		return nil
	}
	err := client.SetDefaultMethod(ctx, key+":card:"+method, customer, method)
	if e := stripe.As(err); e != nil && (e.Outcome == stripe.Rejected || e.Outcome == stripe.Missing) {
		i.log.WarnContext(ctx, "Stripe rejected a card for invoices", "customer", customer, "method", method, "err", e)
		return nil
	}
	return err
}

// inTurn refuses, for now, a row that an earlier one about the same subscription has to precede.
func (i *Invoices) inTurn(ctx context.Context, row outbox.Row) error {
	waits, err := i.out.Waits(ctx, row.Key, KindSubscribe, KindUnsubscribe)
	if err != nil {
		return err
	}
	if waits {
		return &stripe.Error{
			Outcome: stripe.Later,
			Code:    "in_turn",
			Message: "an earlier change of the subscription is still to be sent",
		}
	}
	return nil
}

// invoiceCardSender sets which card pays an org's invoices.
type invoiceCardSender struct{ billed }

func (p invoiceCardSender) Send(ctx context.Context, client *stripe.Client,
	row outbox.Row) (string, outbox.Book, error) {
	_, customer, method, err := p.read(ctx, row)
	if err == nil {
		err = p.useCard(ctx, client, row.Key, customer, method)
	}
	return method, func(context.Context, *db.Tx) error { return nil }, err
}

// subscribeSender starts the billing of orgs.
type subscribeSender struct{ billed }

func (p subscribeSender) Send(ctx context.Context, client *stripe.Client, row outbox.Row) (string, outbox.Book, error) {
	b, customer, method, err := p.read(ctx, row)
	if err == nil {
		err = p.inTurn(ctx, row)
	}
	if err == nil {
		err = p.useCard(ctx, client, row.Key, customer, method)
	}
	if err != nil {
		return "", nil, err
	}
	// Whatever an earlier attempt did, or an earlier row, shows here.
	there, err := client.FindSubscription(ctx, customer, b.Org.String())
	var s stripe.Subscription
	switch {
	case err != nil:
	case there != nil && there.Ending:
		s, err = client.ResumeSubscription(ctx, row.Key+":resume", there.ID)
	case there != nil:
		s = *there
	default:
		s, err = p.subscribe(ctx, client, row.Key, stripe.SubscribeRequest{
			Customer: customer,
			Org:      b.Org.String(),
			Currency: p.cfg.Currency,
		})
	}
	if err != nil {
		return "", nil, err
	}
	return s.ID, func(ctx context.Context, tx *db.Tx) error { return p.biller.Subscription(ctx, tx, b.Org, s) }, nil
}

// subscribe creates the subscription, and in the sandbox, which has no setup, the objects that it needs.
func (i *Invoices) subscribe(ctx context.Context, client *stripe.Client, key string,
	r stripe.SubscribeRequest) (stripe.Subscription, error) {
	s, err := client.Subscribe(ctx, key, r)
	if e := stripe.As(err); e == nil || e.Code != stripe.CodeNoPrice || !i.cfg.Sandbox {
		return s, err
	}
	var setup StripeSetup
	if err := setup.meter(ctx, client); err != nil {
		return s, err
	}
	if err := setup.price(ctx, client, r.Currency); err != nil {
		return s, err
	}
	return client.Subscribe(ctx, key, r)
}

// unsubscribeSender ends the billing of orgs.
type unsubscribeSender struct{ billed }

func (p unsubscribeSender) Send(ctx context.Context, client *stripe.Client,
	row outbox.Row) (string, outbox.Book, error) {
	b, _, _, err := p.read(ctx, row)
	if err == nil {
		err = p.inTurn(ctx, row)
	}
	if err != nil {
		return "", nil, err
	}
	if err := client.CancelSubscription(ctx, row.Key, b.Subscription, b.Now); err != nil {
		return "", nil, err
	}
	s, err := client.Subscription(ctx, b.Subscription)
	if err != nil {
		return "", nil, err
	}
	return s.ID, func(ctx context.Context, tx *db.Tx) error { return p.biller.Subscription(ctx, tx, b.Org, s) }, nil
}

// usageSender reports usage to Stripe's meter.
type usageSender struct{ billed }

func (p usageSender) Send(ctx context.Context, client *stripe.Client, row outbox.Row) (string, outbox.Book, error) {
	var u usageParams
	if err := json.Unmarshal(row.Params, &u); err != nil {
		return "", nil, err
	}
	customer, _, err := p.customers.of(ctx, u.Org)
	if err != nil {
		return "", nil, err
	}
	done := func(context.Context, *db.Tx) error { return nil } // what Stripe counts changes nothing here
	if row.Old {
		minute := u.At.Truncate(time.Minute)
		counted, err := client.Usage(ctx, customer, minute, minute.Add(time.Minute))
		if err != nil {
			return "", nil, orNotSetUp(err)
		}
		if counted >= u.Value {
			return u.Identifier, done, nil
		}
	}
	err = client.SendUsage(ctx, stripe.UsageEvent{Identifier: u.Identifier, Customer: customer, Value: u.Value, At: u.At})
	if e := stripe.As(err); e != nil && e.Outcome == stripe.Rejected {
		if m, asked := client.FindMeter(ctx, stripe.UsageMeter); asked == nil && m.ID == "" {
			err = &stripe.Error{Outcome: stripe.Later, Code: stripe.CodeNoMeter, Message: e.Message}
		}
	}
	return u.Identifier, done, err
}

// orNotSetUp has a row wait whose meter is not there: muster server stripe-setup makes it.
func orNotSetUp(err error) error {
	if e := stripe.As(err); e != nil && e.Code == stripe.CodeNoMeter {
		return &stripe.Error{Outcome: stripe.Later, Code: e.Code, Message: e.Message}
	}
	return err
}

// closeSender puts lines on invoices and finalises them.
type closeSender struct{ billed }

func (p closeSender) Send(ctx context.Context, client *stripe.Client, row outbox.Row) (string, outbox.Book, error) {
	b, customer, method, err := p.read(ctx, row)
	if err == nil {
		err = p.useCard(ctx, client, row.Key, customer, method)
	}
	if err != nil {
		return "", nil, err
	}
	for _, l := range b.Lines {
		if final, err := p.sendLine(ctx, client, row, b.Invoice, customer, l); err != nil {
			return "", nil, err
		} else if final {
			break
		}
	}
	in, err := client.FinaliseInvoice(ctx, row.Key, b.Invoice)
	return p.answer(b.Org, in, err)
}

// sendLine adds a line; final reports that the invoice is not a draft any more, and that the line was left out.
func (i *Invoices) sendLine(ctx context.Context, client *stripe.Client, row outbox.Row, invoice, customer string,
	l BillLine) (final bool, err error) {
	if row.Old {
		if there, err := client.FindInvoiceLine(ctx, invoice, l.Ref); err != nil || there {
			return false, err
		}
	}
	err = client.AddInvoiceLine(ctx, row.Key+":line:"+l.Ref, stripe.InvoiceLine{
		Invoice:     invoice,
		Customer:    customer,
		Cents:       l.Cents,
		Currency:    i.cfg.Currency,
		Description: l.Description,
		Ref:         l.Ref,
	})
	if e := stripe.As(err); e != nil && e.Outcome == stripe.Rejected {
		if in, asked := client.Invoice(ctx, invoice); asked == nil && in.Status != stripe.InvoiceDraft {
			return true, nil
		}
	}
	return false, err
}

// collectSender charges cards for open invoices.
type collectSender struct{ billed }

func (p collectSender) Send(ctx context.Context, client *stripe.Client, row outbox.Row) (string, outbox.Book, error) {
	b, customer, method, err := p.read(ctx, row)
	if err == nil {
		err = p.useCard(ctx, client, row.Key, customer, method)
	}
	if err != nil {
		return "", nil, err
	}
	in, err := client.PayInvoice(ctx, row.Key, b.Invoice, "")
	return p.answer(b.Org, in, err)
}

// writeOffSender marks invoices as uncollectible.
type writeOffSender struct{ billed }

// Send may be repeated at any time, also when Stripe has forgotten the key: an invoice that is uncollectible is
// not marked twice.
func (p writeOffSender) Send(ctx context.Context, client *stripe.Client, row outbox.Row) (string, outbox.Book, error) {
	var b billingParams
	if err := json.Unmarshal(row.Params, &b); err != nil {
		return "", nil, err
	}
	in, err := client.GiveUpInvoice(ctx, row.Key, b.Invoice)
	return p.answer(b.Org, in, err)
}

// answer hands an invoice that was changed to the biller.
func (i *Invoices) answer(org id.Org, in stripe.Invoice, err error) (string, outbox.Book, error) {
	return in.ID, func(ctx context.Context, tx *db.Tx) error {
		_, err := i.biller.Invoice(ctx, tx, org, in, BillTax{})
		return err
	}, err
}
