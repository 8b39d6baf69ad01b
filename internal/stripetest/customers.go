package stripetest

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
}

func (s *Server) customerRoutes() {
	s.onPost("/v1/customers", s.createCustomer)
	s.onGet("/v1/customers/{id}", s.customer)
}

func (s *Server) createCustomer(_ *http.Request, form url.Values) answer {
	c := &customer{ID: newID("cus"), Object: "customer", Name: form.Get("name"), Email: form.Get("email"), Created: s.now(), Metadata: nested(form, "metadata")}
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
