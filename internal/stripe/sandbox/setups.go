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

// setups are the setup intents, which save cards.
type setups struct {
	store   *store
	events  *events
	methods *methods
}

func (ss *setups) routes(f *front) {
	f.onPost("/v1/setup_intents", func(_ *http.Request, form url.Values) answer {
		c := form.Get("customer")
		if c != "" && ss.store.Customers.get(c) == nil {
			return missing("customer", c)
		}
		x := ss.add(c, nested(form, "metadata"))
		if form.Get("confirm") != "true" {
			return ok(x)
		}
		return ss.confirm(x, form.Get("payment_method"))
	})
	f.onGet("/v1/setup_intents/{id}", func(r *http.Request) answer {
		if x := ss.store.Setups.get(r.PathValue("id")); x != nil {
			out := *x
			if id, is := x.PaymentMethod.(string); is && expands(r.URL.Query(), "payment_method") {
				out.PaymentMethod = ss.store.Methods.get(id)
			}
			return ok(out)
		}
		return missing("setupintent", r.PathValue("id"))
	})
}

func (ss *setups) add(customer string, meta map[string]string) *setupIntent {
	id := newID("seti")
	return ss.store.Setups.put(id, &setupIntent{
		ID:           id,
		Object:       "setup_intent",
		Customer:     orNull(customer),
		MethodTypes:  []string{"card"},
		Status:       "requires_payment_method",
		Usage:        "off_session",
		ClientSecret: id + "_secret_" + newID("x"),
		Created:      ss.store.now(),
		Metadata:     meta,
	})
}

// confirm saves a card, which its bank may refuse. Who saves a card is there to answer its bank's question.
func (ss *setups) confirm(x *setupIntent, method string) answer {
	m := ss.methods.named(method)
	if m == nil {
		return missing("PaymentMethod", method)
	}
	if c := cards[m.Test]; c.NotSaved {
		bad := *c.Decline
		x.LastError, x.Status = &bad, "requires_payment_method"
		ss.events.emit("setup_intent.setup_failed", x)
		return bad.answer()
	}
	x.Status, x.PaymentMethod, x.LastError = "succeeded", m.ID, nil
	if x.Customer != nil {
		ss.methods.attach(m, *x.Customer)
	}
	ss.events.emit("setup_intent.succeeded", x)
	return ok(x)
}
