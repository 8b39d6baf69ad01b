package sandbox

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

type session struct {
	ID             string            `json:"id"`
	Object         string            `json:"object"`
	Amount         *int64            `json:"amount_total"`
	AutomaticTax   automaticTax      `json:"automatic_tax"`
	Currency       *string           `json:"currency"`
	CustomFields   []any             `json:"custom_fields"`
	CustomText     struct{}          `json:"custom_text"`
	Customer       *string           `json:"customer"`
	Reference      *string           `json:"client_reference_id"`
	ExpiresAt      int64             `json:"expires_at"`
	MethodTypes    []string          `json:"payment_method_types"`
	Mode           string            `json:"mode"`
	Status         string            `json:"status"` // open, complete, expired
	PayStatus      string            `json:"payment_status"`
	Payment        *string           `json:"payment_intent"`
	Setup          *string           `json:"setup_intent"`
	Shipping       []any             `json:"shipping_options"`
	SuccessURL     string            `json:"success_url"`
	CancelURL      string            `json:"cancel_url"`
	URL            *string           `json:"url"`
	Created        int64             `json:"created"`
	Livemode       bool              `json:"livemode"`
	PaymentMeta    map[string]string `json:"x_payment_metadata,omitempty"` // what the payment will be made with
	PaymentUsage   string            `json:"x_future_usage,omitempty"`
	PaymentReceipt string            `json:"x_receipt_email,omitempty"`
}

type automaticTax struct {
	Enabled bool    `json:"enabled"`
	Status  *string `json:"status"`
}

func (s *Server) checkoutRoutes() {
	s.onPost("/v1/checkout/sessions", s.createSession)
	s.onGet("/v1/checkout/sessions/{id}", func(r *http.Request) answer {
		if x := s.s.Sessions.get(r.PathValue("id")); x != nil {
			return ok(x)
		}
		return missing("checkout session", r.PathValue("id"))
	})
	s.pages.HandleFunc("GET /pay/{id}", s.payPage)
	s.pages.HandleFunc("POST /pay/{id}", s.payClicked)
}

func (s *Server) createSession(_ *http.Request, form url.Values) answer {
	if c := form.Get("customer"); c != "" && s.s.Customers.get(c) == nil {
		return missing("customer", c)
	}
	x := &session{
		ID:           newID("cs_test"),
		Object:       "checkout.session",
		CustomFields: []any{},
		Customer:     orNull(form.Get("customer")),
		Reference:    orNull(form.Get("client_reference_id")),
		ExpiresAt:    s.now() + 24*3600,
		MethodTypes:  listed(form, "payment_method_types"),
		Mode:         form.Get("mode"),
		Status:       "open",
		PayStatus:    "unpaid",
		Shipping:     []any{},
		SuccessURL:   form.Get("success_url"),
		CancelURL:    form.Get("cancel_url"),
		Created:      s.now(),
	}
	if x.MethodTypes == nil {
		x.MethodTypes = dashboardMethods
	}
	switch x.Mode {
	case "payment":
		amount, err := strconv.ParseInt(form.Get("line_items[0][price_data][unit_amount]"), 10, 64)
		if err != nil || amount < 50 {
			return invalid("line_items", "a payment of at least 50 cents is wanted")
		}
		x.Amount, x.Currency = &amount, orNull(form.Get("line_items[0][price_data][currency]"))
		x.PaymentMeta = nested(form, "payment_intent_data[metadata]")
		x.PaymentUsage = form.Get("payment_intent_data[setup_future_usage]")
		x.PaymentReceipt = form.Get("payment_intent_data[receipt_email]")
	case "setup":
		x.PayStatus = "no_payment_required"
		x.Setup = &s.newSetup(form.Get("customer"), nested(form, "setup_intent_data[metadata]")).ID
	default:
		return invalid("mode", "mode must be payment or setup")
	}
	x.URL = orNull(s.cfg.PublicURL + "/pay/" + x.ID)
	s.s.Sessions.put(x.ID, x)
	return ok(x)
}

// dashboardMethods are the kinds of payment methods that a page offers when the request names none: what is switched on
// in the dashboard.
var dashboardMethods = []string{"card", "link", "sepa_debit"}

// Pay is the payer paying, or saving a card, on a page with a payment method; done reports whether the card was good.
// The payer is there: a bank that asks is answered.
func (s *Server) Pay(sessionID, method string) (done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.s.Sessions.get(sessionID)
	if x == nil || x.Status != "open" || !slices.Contains(x.MethodTypes, cards[method].kind()) {
		return false
	}
	if x.Mode == "setup" {
		done = s.confirmSetup(s.s.Setups.get(*x.Setup), method).Status == http.StatusOK
	} else {
		done = s.payHere(x, method)
	}
	if done {
		x.Status, x.URL = "complete", nil
		s.emit("checkout.session.completed", x)
	}
	s.save()
	return done
}

// payHere tries a card on the page; the first try makes the payment, later ones go on with it.
func (s *Server) payHere(x *session, method string) bool {
	if x.Payment == nil {
		customer := ""
		if x.Customer != nil {
			customer = *x.Customer
		}
		p := s.newPayment(*x.Amount, *x.Currency, customer, x.PaymentMeta)
		p.MethodTypes = x.MethodTypes
		p.FutureUsage, p.ReceiptEmail = orNull(x.PaymentUsage), orNull(x.PaymentReceipt)
		x.Payment = &p.ID
	}
	p := s.s.Payments.get(*x.Payment)
	a := s.charge(p, method, x.SuccessURL, nil)
	if p.Status == "requires_action" {
		s.collect(p)
	}
	if a.Status != http.StatusOK {
		return false
	}
	if p.Status == "succeeded" {
		x.PayStatus = "paid"
	}
	return true
}

// Expire ends a page on which nothing was paid.
func (s *Server) Expire(sessionID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.s.Sessions.get(sessionID); x != nil && x.Status == "open" {
		x.Status, x.URL = "expired", nil
		s.emit("checkout.session.expired", x)
		s.save()
	}
}
