package sandbox

import (
	"net/http"
	"net/url"
)

type customer struct {
	ID       string            `json:"id"`
	Object   string            `json:"object"`
	Name     string            `json:"name"`
	Email    string            `json:"email"`
	Created  int64             `json:"created"`
	Livemode bool              `json:"livemode"`
	Metadata map[string]string `json:"metadata"`
	// Balance is added to the next invoice's total, in cents; a negative balance is a credit.
	Balance  int64           `json:"balance"`
	Settings invoiceSettings `json:"invoice_settings"`
}

type invoiceSettings struct {
	Method *string `json:"default_payment_method"`
}

// customers are who pays, with the card that pays their invoices.
type customers struct {
	store   *store
	events  *events
	methods *methods
}

func (cs *customers) routes(f *front) {
	f.onPost("/v1/customers", cs.create)
	f.onGet("/v1/customers/{id}", cs.retrieve)
	f.onPost("/v1/customers/{id}", cs.update)
}

func (cs *customers) create(_ *http.Request, form url.Values) answer {
	c := &customer{
		ID:       newID("cus"),
		Object:   "customer",
		Name:     form.Get("name"),
		Email:    form.Get("email"),
		Created:  cs.store.now(),
		Metadata: nested(form, "metadata"),
	}
	cs.store.Customers.put(c.ID, c)
	cs.events.emit("customer.created", c)
	return ok(c)
}

func (cs *customers) retrieve(r *http.Request) answer {
	if c := cs.store.Customers.get(r.PathValue("id")); c != nil {
		return ok(c)
	}
	return missing("customer", r.PathValue("id"))
}

// update sets the card that pays invoices. Unlike Stripe it takes the name of a test card too, and saves it.
func (cs *customers) update(r *http.Request, form url.Values) answer {
	c := cs.store.Customers.get(r.PathValue("id"))
	if c == nil {
		return missing("customer", r.PathValue("id"))
	}
	if name := form.Get("invoice_settings[default_payment_method]"); name != "" {
		m := cs.methods.named(name)
		if m == nil {
			return missing("PaymentMethod", name)
		}
		if m.ID != name {
			cs.methods.attach(m, c.ID)
		}
		if m.Customer == nil || *m.Customer != c.ID {
			return invalid("invoice_settings[default_payment_method]",
				"The customer does not have a payment method with the ID %s. The payment method must be attached to the customer.",
				name)
		}
		c.Settings.Method = &m.ID
	}
	cs.events.emit("customer.updated", c)
	return ok(c)
}
