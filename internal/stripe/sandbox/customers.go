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

func (s *Server) customerRoutes() {
	s.onPost("/v1/customers", s.createCustomer)
	s.onGet("/v1/customers/{id}", s.customer)
	s.onPost("/v1/customers/{id}", s.updateCustomer)
}

func (s *Server) createCustomer(_ *http.Request, form url.Values) answer {
	c := &customer{
		ID:       newID("cus"),
		Object:   "customer",
		Name:     form.Get("name"),
		Email:    form.Get("email"),
		Created:  s.now(),
		Metadata: nested(form, "metadata"),
	}
	s.s.Customers.put(c.ID, c)
	s.emit("customer.created", c)
	return ok(c)
}

func (s *Server) customer(r *http.Request) answer {
	if c := s.s.Customers.get(r.PathValue("id")); c != nil {
		return ok(c)
	}
	return missing("customer", r.PathValue("id"))
}

// updateCustomer sets the card that pays invoices. Unlike Stripe it takes the name of a test card too, and saves it.
func (s *Server) updateCustomer(r *http.Request, form url.Values) answer {
	c := s.s.Customers.get(r.PathValue("id"))
	if c == nil {
		return missing("customer", r.PathValue("id"))
	}
	if name := form.Get("invoice_settings[default_payment_method]"); name != "" {
		m := s.method(name)
		if m == nil {
			return missing("PaymentMethod", name)
		}
		if m.ID != name {
			s.attach(m, c.ID)
		}
		if m.Customer == nil || *m.Customer != c.ID {
			return invalid("invoice_settings[default_payment_method]",
				"The customer does not have a payment method with the ID %s. The payment method must be attached to the customer.",
				name)
		}
		c.Settings.Method = &m.ID
	}
	s.emit("customer.updated", c)
	return ok(c)
}
