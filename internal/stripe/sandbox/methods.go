package sandbox

import (
	"net/http"
	"net/url"
)

type paymentMethod struct {
	ID       string            `json:"id"`
	Object   string            `json:"object"`
	Type     string            `json:"type"`
	Billing  billingDetails    `json:"billing_details"`
	Card     methodCard        `json:"card"`
	Customer *string           `json:"customer"`
	Created  int64             `json:"created"`
	Livemode bool              `json:"livemode"`
	Metadata map[string]string `json:"metadata"`
	Test     string            `json:"x_test,omitempty"` // which of cards it is
}

type methodCard struct {
	Brand    string  `json:"brand"`
	Last4    string  `json:"last4"`
	ExpMonth int     `json:"exp_month"`
	ExpYear  int     `json:"exp_year"`
	Funding  string  `json:"funding"`
	Country  *string `json:"country"`
	Print    string  `json:"fingerprint"` // of the number: the same whoever saves it
}

type billingDetails struct {
	Address *struct{} `json:"address"`
	Email   *string   `json:"email"`
	Name    *string   `json:"name"`
	Phone   *string   `json:"phone"`
}

func (s *Server) methodRoutes() {
	s.onGet("/v1/payment_methods/{id}", func(r *http.Request) answer {
		if m := s.s.Methods.get(r.PathValue("id")); m != nil {
			return ok(m)
		}
		return missing("PaymentMethod", r.PathValue("id"))
	})
	s.onGet("/v1/customers/{id}/payment_methods", func(r *http.Request) answer {
		if s.s.Customers.get(r.PathValue("id")) == nil {
			return missing("customer", r.PathValue("id"))
		}
		return pageOf(&s.s.Methods, r, func(_ url.Values, m *paymentMethod) bool {
			return m.Customer != nil && *m.Customer == r.PathValue("id")
		})
	})
	s.onPost("/v1/payment_methods/{id}/detach", func(r *http.Request, _ url.Values) answer {
		m := s.s.Methods.get(r.PathValue("id"))
		switch {
		case m == nil:
			return missing("PaymentMethod", r.PathValue("id"))
		case m.Customer == nil:
			return invalid("", "The payment method you provided is not attached to a customer so detachment is impossible.")
		}
		m.Customer = nil
		s.emit("payment_method.detached", m)
		return ok(m)
	})
}

// method finds a payment method by its id, or makes one of a test card's name; nil: there is none.
func (s *Server) method(name string) *paymentMethod {
	if m := s.s.Methods.get(name); m != nil {
		return m
	}
	c, known := cards[name]
	if !known {
		return nil
	}
	country := "US"
	m := &paymentMethod{
		ID:       newID("pm"),
		Object:   "payment_method",
		Type:     "card",
		Created:  s.now(),
		Metadata: map[string]string{},
		Test:     name,
		Card: methodCard{
			Brand:    c.Brand,
			Last4:    c.Last4,
			ExpMonth: 12,
			ExpYear:  s.cfg.Now().Year() + 3,
			Funding:  "credit",
			Country:  &country,
			Print:    "fp_" + name,
		},
	}
	return s.s.Methods.put(m.ID, m)
}

// attach saves a method for a customer.
func (s *Server) attach(m *paymentMethod, customer string) {
	if customer == "" || m.Customer != nil {
		return
	}
	m.Customer = &customer
	s.emit("payment_method.attached", m)
}
