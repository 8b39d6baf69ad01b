package payment

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// customers are the orgs as Stripe knows them.
type customers struct{ *core }

func customerKey(org id.Org) string { return "customer:" + org.String() }

// errNoCustomer postpones a row whose org has no customer at Stripe yet: the customer's row comes first.
var errNoCustomer = &stripe.Error{Outcome: stripe.Later, Code: "no_customer", Message: "the customer is not created " +
	"yet"}

// ensureCustomer queues the creation of the org's customer if there is none, and returns the org's default payment
// method, "" if it has none.
func ensureCustomer(ctx context.Context, out *outbox.Batch,
	payer account.Principal) (method string, err error) {
	c, err := out.Tx.Q.StripeCustomer(ctx, payer.Org)
	if db.NoRows(err) {
		return "", out.Add(ctx, kindCustomer, payer.Org.String(), customerKey(payer.Org),
			stripe.Customer{Org: payer.Org.String(), Name: payer.OrgName, Email: payer.Email})
	}
	if err != nil {
		return "", fmt.Errorf("read customer: %w", err)
	}
	return c.PaymentMethod, nil
}

// of returns an org's customer and the card that pays its invoices ("": none). The error is errNoCustomer if
// there is no customer yet.
func (cs *customers) of(ctx context.Context, org id.Org) (customer, method string, err error) {
	c, err := cs.d.Q.StripeCustomer(ctx, org)
	if db.NoRows(err) {
		return "", "", errNoCustomer
	}
	if err != nil {
		return "", "", fmt.Errorf("read customer of %s: %w", org, err)
	}
	if c.PaymentMethod == "" {
		return c.CustomerID, cs.cfg.DefaultMethod, nil
	}
	return c.CustomerID, c.PaymentMethod, nil
}

// customerSender creates customers.
type customerSender struct{ *customers }

// Send creates a customer. A second one, created a day later because no answer ever came, does no harm: the first one
// that is stored stays the org's.
func (p customerSender) Send(ctx context.Context, client *stripe.Client, row outbox.Row) (string, outbox.Book, error) {
	var c stripe.Customer
	if err := json.Unmarshal(row.Params, &c); err != nil {
		return "", nil, err
	}
	org, err := id.Parse[id.Org](c.Org)
	if err != nil {
		return "", nil, err
	}
	customer, err := client.CreateCustomer(ctx, row.Key, c)
	return customer, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.Q.InsertStripeCustomer(ctx, org, customer); err != nil {
			return fmt.Errorf("insert customer of %s: %w", org, err)
		}
		return nil
	}, err
}

// Refused logs that an org gets no customer: what waits for it is given up by itself.
func (p customerSender) Refused(ctx context.Context, _ *db.Tx, row outbox.Row, why *stripe.Error) error {
	p.refusal(ctx, row, why)
	return nil
}

// refusal returns why a payer's request was refused, for the payer, and logs a refusal whose cause is ours.
func (c *core) refusal(ctx context.Context, row outbox.Row, why *stripe.Error) string {
	if why.Outcome == stripe.Declined || why.Code == outbox.CodeGivenUp {
		return why.Message
	}
	c.log.ErrorContext(ctx, "Stripe rejected a payer's request", "kind", row.Kind, "ref", row.Ref, "err", why)
	return "The payment could not be made. Nothing was charged."
}
