package payment

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripepay"
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

// said is what a sender returns: the id of Stripe's object, what books the answer, and what went wrong.
type said = func(context.Context, *db.Tx) error

// billed reads a row's parameters, and its org's customer and default card ("": none).
func (p *Payments) billed(ctx context.Context, row Row) (b billingParams, customer, method string, err error) {
	if err := json.Unmarshal(row.Params, &b); err != nil {
		return b, "", "", err
	}
	customer, method, err = p.customerOf(ctx, b.Org)
	return b, customer, method, err
}

func (p *Payments) customerOf(ctx context.Context, org id.Org) (customer, method string, err error) {
	c, err := p.d.Q.StripeCustomer(ctx, org)
	if db.NoRows(err) {
		return "", "", errNoCustomer
	}
	if err != nil {
		return "", "", fmt.Errorf("customer of %s: %w", org, err)
	}
	if c.PaymentMethod == "" {
		return c.CustomerID, p.cfg.DefaultMethod, nil
	}
	return c.CustomerID, c.PaymentMethod, nil
}

// useCard says at Stripe which card pays the customer's invoices. A card that Stripe does not have any more is no reason to
// stop: the invoice is open until another one pays it.
func (p *Payments) useCard(ctx context.Context, stripe *stripepay.Client, key, customer, method string) error {
	if method == "" {
		return nil
	}
	err := stripe.SetDefaultMethod(ctx, key+":card:"+method, customer, method)
	if e := stripepay.As(err); e != nil && (e.Outcome == stripepay.Rejected || e.Outcome == stripepay.Missing) {
		p.log.WarnContext(ctx, "Stripe refuses a card for invoices", "customer", customer, "method", method, "error", e)
		return nil
	}
	return err
}

// inTurn refuses, for now, a row that an earlier one about the same subscription has to precede.
func (p *Payments) inTurn(ctx context.Context, row Row) error {
	waits, err := p.d.Q.OutboxBefore(ctx, row.Key, []string{KindSubscribe, KindUnsubscribe})
	if err != nil {
		return fmt.Errorf("rows before %s: %w", row.Key, err)
	}
	if waits {
		return &stripepay.Error{Outcome: stripepay.Later, Code: "in_turn", Message: "an earlier change of the subscription is still to be said"}
	}
	return nil
}

func (p *Payments) sayCard(ctx context.Context, stripe *stripepay.Client, row Row) (string, said, error) {
	_, customer, method, err := p.billed(ctx, row)
	if err == nil {
		err = p.useCard(ctx, stripe, row.Key, customer, method)
	}
	return method, func(context.Context, *db.Tx) error { return nil }, err
}

func (p *Payments) saySubscribe(ctx context.Context, stripe *stripepay.Client, row Row) (string, said, error) {
	b, customer, method, err := p.billed(ctx, row)
	if err == nil {
		err = p.inTurn(ctx, row)
	}
	if err == nil {
		err = p.useCard(ctx, stripe, row.Key, customer, method)
	}
	if err != nil {
		return "", nil, err
	}
	// Whatever an earlier attempt did, or an earlier row, shows here.
	there, err := stripe.FindSubscription(ctx, customer, b.Org.String())
	var s stripepay.Subscription
	switch {
	case err != nil:
	case there != nil && there.Ending:
		s, err = stripe.ResumeSubscription(ctx, row.Key+":resume", there.ID)
	case there != nil:
		s = *there
	default:
		s, err = p.subscribe(ctx, stripe, row.Key, stripepay.SubscribeRequest{Customer: customer, Org: b.Org.String(), Currency: p.cfg.Currency})
	}
	if err != nil {
		return "", nil, err
	}
	return s.ID, func(ctx context.Context, tx *db.Tx) error { return p.biller.Subscription(ctx, tx, b.Org, s) }, nil
}

// subscribe makes the subscription, and in the sandbox, which nobody sets up, what it needs.
func (p *Payments) subscribe(ctx context.Context, stripe *stripepay.Client, key string, r stripepay.SubscribeRequest) (stripepay.Subscription, error) {
	s, err := stripe.Subscribe(ctx, key, r)
	if e := stripepay.As(err); e == nil || e.Code != stripepay.CodeNoPrice || !p.cfg.Sandbox {
		return s, err
	}
	var setup StripeSetup
	if err := setup.meter(ctx, stripe); err != nil {
		return s, err
	}
	if err := setup.price(ctx, stripe, r.Currency); err != nil {
		return s, err
	}
	return stripe.Subscribe(ctx, key, r)
}

func (p *Payments) sayUnsubscribe(ctx context.Context, stripe *stripepay.Client, row Row) (string, said, error) {
	b, _, _, err := p.billed(ctx, row)
	if err == nil {
		err = p.inTurn(ctx, row)
	}
	if err != nil {
		return "", nil, err
	}
	if err := stripe.CancelSubscription(ctx, row.Key, b.Subscription, b.Now); err != nil {
		return "", nil, err
	}
	s, err := stripe.Subscription(ctx, b.Subscription)
	if err != nil {
		return "", nil, err
	}
	return s.ID, func(ctx context.Context, tx *db.Tx) error { return p.biller.Subscription(ctx, tx, b.Org, s) }, nil
}

func (p *Payments) sayUsage(ctx context.Context, stripe *stripepay.Client, row Row) (string, said, error) {
	var u usageParams
	if err := json.Unmarshal(row.Params, &u); err != nil {
		return "", nil, err
	}
	customer, _, err := p.customerOf(ctx, u.Org)
	if err != nil {
		return "", nil, err
	}
	done := func(context.Context, *db.Tx) error { return nil } // what Stripe counts changes nothing here
	if row.Old {
		minute := u.At.Truncate(time.Minute)
		counted, err := stripe.Usage(ctx, customer, minute, minute.Add(time.Minute))
		if err != nil {
			return "", nil, orNotSetUp(err)
		}
		if counted >= u.Value {
			return u.Identifier, done, nil
		}
	}
	err = stripe.SendUsage(ctx, stripepay.UsageEvent{Identifier: u.Identifier, Customer: customer, Value: u.Value, At: u.At})
	if e := stripepay.As(err); e != nil && e.Outcome == stripepay.Rejected {
		if m, asked := stripe.FindMeter(ctx, stripepay.UsageMeter); asked == nil && m.ID == "" {
			err = &stripepay.Error{Outcome: stripepay.Later, Code: stripepay.CodeNoMeter, Message: e.Message}
		}
	}
	return u.Identifier, done, err
}

// orNotSetUp has a row wait whose meter is not there: muster server stripe-setup makes it.
func orNotSetUp(err error) error {
	if e := stripepay.As(err); e != nil && e.Code == stripepay.CodeNoMeter {
		return &stripepay.Error{Outcome: stripepay.Later, Code: e.Code, Message: e.Message}
	}
	return err
}

func (p *Payments) sayClose(ctx context.Context, stripe *stripepay.Client, row Row) (string, said, error) {
	b, customer, method, err := p.billed(ctx, row)
	if err == nil {
		err = p.useCard(ctx, stripe, row.Key, customer, method)
	}
	if err != nil {
		return "", nil, err
	}
	for _, l := range b.Lines {
		if final, err := p.sayLine(ctx, stripe, row, b.Invoice, customer, l); err != nil {
			return "", nil, err
		} else if final {
			break
		}
	}
	in, err := stripe.FinaliseInvoice(ctx, row.Key, b.Invoice)
	return p.invoiceSaid(b.Org, in, err)
}

// sayLine adds a line; final says that the invoice is no draft any more, and that the line is left out.
func (p *Payments) sayLine(ctx context.Context, stripe *stripepay.Client, row Row, invoice, customer string, l BillLine) (final bool, err error) {
	if row.Old {
		if there, err := stripe.FindInvoiceLine(ctx, invoice, l.Ref); err != nil || there {
			return false, err
		}
	}
	err = stripe.AddInvoiceLine(ctx, row.Key+":line:"+l.Ref, stripepay.InvoiceLine{Invoice: invoice, Customer: customer, Cents: l.Cents, Currency: p.cfg.Currency,
		Description: l.Description, Ref: l.Ref})
	if e := stripepay.As(err); e != nil && e.Outcome == stripepay.Rejected {
		if in, asked := stripe.Invoice(ctx, invoice); asked == nil && in.Status != stripepay.InvoiceDraft {
			return true, nil
		}
	}
	return false, err
}

func (p *Payments) sayCollect(ctx context.Context, stripe *stripepay.Client, row Row) (string, said, error) {
	b, customer, method, err := p.billed(ctx, row)
	if err == nil {
		err = p.useCard(ctx, stripe, row.Key, customer, method)
	}
	if err != nil {
		return "", nil, err
	}
	in, err := stripe.PayInvoice(ctx, row.Key, b.Invoice, "")
	return p.invoiceSaid(b.Org, in, err)
}

// sayWriteOff may be said again at any time, also when Stripe has forgotten the key: an invoice that is uncollectible is not
// marked twice.
func (p *Payments) sayWriteOff(ctx context.Context, stripe *stripepay.Client, row Row) (string, said, error) {
	var b billingParams
	if err := json.Unmarshal(row.Params, &b); err != nil {
		return "", nil, err
	}
	in, err := stripe.GiveUpInvoice(ctx, row.Key, b.Invoice)
	return p.invoiceSaid(b.Org, in, err)
}

// invoiceSaid hands an invoice that was changed to the biller.
func (p *Payments) invoiceSaid(org id.Org, in stripepay.Invoice, err error) (string, said, error) {
	return in.ID, func(ctx context.Context, tx *db.Tx) error {
		_, err := p.biller.Invoice(ctx, tx, org, in, BillTax{})
		return err
	}, err
}
