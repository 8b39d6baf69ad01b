package stripe

import (
	"context"

	"github.com/stripe/stripe-go/v76"
)

// Customer is an org as Stripe knows it.
type Customer struct {
	Org   string `json:"org"` // prefixed id, kept as metadata
	Name  string `json:"name"`
	Email string `json:"email"`
}

// CreateCustomer makes a customer and returns its id, cus_….
func (c *Client) CreateCustomer(ctx context.Context, key string, p Customer) (string, error) {
	params := &stripe.CustomerParams{Name: stripe.String(p.Name), Email: stripe.String(p.Email)}
	params.AddMetadata("org", p.Org)
	params.Context = ctx
	params.SetIdempotencyKey(key)
	cus, err := c.api.Customers.New(params)
	if err != nil {
		return "", failure(err)
	}
	return cus.ID, nil
}

// CustomerOrg is the prefixed id of the org that a customer was made for; empty for one that is not ours.
func (c *Client) CustomerOrg(ctx context.Context, customer string) (string, error) {
	params := &stripe.CustomerParams{}
	params.Context = ctx
	cus, err := c.api.Customers.Get(customer, params)
	if err != nil {
		return "", failure(err)
	}
	return cus.Metadata[metaOrg], nil
}

// SetDefaultMethod sets which saved card pays a customer's invoices from now on.
func (c *Client) SetDefaultMethod(ctx context.Context, key, customer, method string) error {
	params := &stripe.CustomerParams{
		InvoiceSettings: &stripe.CustomerInvoiceSettingsParams{DefaultPaymentMethod: stripe.String(method)},
	}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	_, err := c.api.Customers.Update(customer, params)
	return failure(err)
}
