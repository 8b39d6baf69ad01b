package sandbox

import (
	"net/http"
	"net/url"
)

type setupIntent struct {
	ID            string            `json:"id"`
	Object        string            `json:"object"`
	Customer      *string           `json:"customer"`
	PaymentMethod any               `json:"payment_method"` // an id, null, or the method where it is expanded
	MethodTypes   []string          `json:"payment_method_types"`
	Status        string            `json:"status"`
	Usage         string            `json:"usage"`
	LastError     *apiError         `json:"last_setup_error"`
	ClientSecret  string            `json:"client_secret"`
	Created       int64             `json:"created"`
	Livemode      bool              `json:"livemode"`
	Metadata      map[string]string `json:"metadata"`
}

func (s *Server) setupRoutes() {
	s.onPost("/v1/setup_intents", func(_ *http.Request, form url.Values) answer {
		c := form.Get("customer")
		if c != "" && s.s.Customers.get(c) == nil {
			return missing("customer", c)
		}
		x := s.newSetup(c, nested(form, "metadata"))
		if form.Get("confirm") != "true" {
			return ok(x)
		}
		return s.confirmSetup(x, form.Get("payment_method"))
	})
	s.onGet("/v1/setup_intents/{id}", func(r *http.Request) answer {
		if x := s.s.Setups.get(r.PathValue("id")); x != nil {
			out := *x
			if id, is := x.PaymentMethod.(string); is && expands(r.URL.Query(), "payment_method") {
				out.PaymentMethod = s.s.Methods.get(id)
			}
			return ok(out)
		}
		return missing("setupintent", r.PathValue("id"))
	})
}

func (s *Server) newSetup(customer string, meta map[string]string) *setupIntent {
	id := newID("seti")
	return s.s.Setups.put(id, &setupIntent{
		ID:           id,
		Object:       "setup_intent",
		Customer:     orNull(customer),
		MethodTypes:  []string{"card"},
		Status:       "requires_payment_method",
		Usage:        "off_session",
		ClientSecret: id + "_secret_" + newID("x"),
		Created:      s.now(),
		Metadata:     meta,
	})
}

// confirmSetup saves a card, which its bank may refuse. Who saves a card is there to answer its bank's question.
func (s *Server) confirmSetup(x *setupIntent, method string) answer {
	m := s.method(method)
	if m == nil {
		return missing("PaymentMethod", method)
	}
	if c := cards[m.Test]; c.NotSaved {
		bad := *c.Decline
		x.LastError, x.Status = &bad, "requires_payment_method"
		s.emit("setup_intent.setup_failed", x)
		return bad.answer()
	}
	x.Status, x.PaymentMethod, x.LastError = "succeeded", m.ID, nil
	if x.Customer != nil {
		s.attach(m, *x.Customer)
	}
	s.emit("setup_intent.succeeded", x)
	return ok(x)
}
