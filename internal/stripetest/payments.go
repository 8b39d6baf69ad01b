package stripetest

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

type customer struct {
	ID       string            `json:"id"`
	Object   string            `json:"object"`
	Name     string            `json:"name"`
	Email    string            `json:"email"`
	Created  int64             `json:"created"`
	Metadata map[string]string `json:"metadata"`
}

type payment struct {
	ID             string            `json:"id"`
	Object         string            `json:"object"`
	Amount         int64             `json:"amount"`
	AmountReceived int64             `json:"amount_received"`
	Currency       string            `json:"currency"`
	Customer       string            `json:"customer,omitempty"`
	Description    string            `json:"description,omitempty"`
	Status         string            `json:"status"`
	PaymentMethod  string            `json:"payment_method,omitempty"`
	LastError      *apiError         `json:"last_payment_error,omitempty"`
	Created        int64             `json:"created"`
	Metadata       map[string]string `json:"metadata"`
}

type list struct {
	Object  string `json:"object"`
	Data    []any  `json:"data"`
	HasMore bool   `json:"has_more"`
	URL     string `json:"url"`
}

func (s *Server) createCustomer(form url.Values) answer {
	c := &customer{ID: newID("cus"), Object: "customer", Name: form.Get("name"), Email: form.Get("email"), Created: s.cfg.Now().Unix(), Metadata: nested(form, "metadata")}
	s.s.Customers[c.ID] = c
	s.emit("customer.created", c)
	return ok(c)
}

func (s *Server) customer(r *http.Request) answer {
	if c := s.s.Customers[r.PathValue("id")]; c != nil {
		return ok(c)
	}
	return missing("customer", r.PathValue("id"))
}

func (s *Server) createPayment(form url.Values) answer {
	amount, err := strconv.ParseInt(form.Get("amount"), 10, 64)
	switch {
	case err != nil || amount < 50:
		return invalid("amount", "Amount must be at least 50 cents")
	case len(form.Get("currency")) != 3:
		return invalid("currency", "Invalid currency")
	case form.Get("customer") != "" && s.s.Customers[form.Get("customer")] == nil:
		return missing("customer", form.Get("customer"))
	case form.Get("confirm") == "true" && form.Get("payment_method") == "":
		return invalid("payment_method", "You cannot confirm without a payment method")
	}
	p := &payment{
		ID: newID("pi"), Object: "payment_intent", Amount: amount, Currency: form.Get("currency"), Customer: form.Get("customer"),
		Description: form.Get("description"), Status: "requires_payment_method", Created: s.cfg.Now().Unix(), Metadata: nested(form, "metadata"),
	}
	s.s.Payments[p.ID] = p
	s.s.Order = append(s.s.Order, p.ID)
	s.emit("payment_intent.created", p)
	if form.Get("confirm") != "true" {
		return ok(p)
	}
	return s.charge(p, form.Get("payment_method"))
}

// declines are the cards that do not pay, by payment method and by amount.
var declines = map[string]apiError{
	"pm_card_visa_chargeDeclined":                  {Code: "card_declined", DeclineCode: "generic_decline", Message: "Your card was declined."},
	"pm_card_visa_chargeDeclinedInsufficientFunds": {Code: "card_declined", DeclineCode: "insufficient_funds", Message: "Your card has insufficient funds."},
	"pm_card_chargeDeclinedExpiredCard":            {Code: "expired_card", Message: "Your card has expired."},
	"pm_card_authenticationRequired":               {Code: "authentication_required", DeclineCode: "authentication_required", Message: "Your card was declined. This transaction requires authentication."},
}

var declinedAmounts = map[int64]string{
	400002: "pm_card_visa_chargeDeclined",
	400095: "pm_card_visa_chargeDeclinedInsufficientFunds",
	400069: "pm_card_chargeDeclinedExpiredCard",
}

// charge tries to collect p with a payment method.
func (s *Server) charge(p *payment, method string) answer {
	bad, declined := declines[method]
	if as, ok := declinedAmounts[p.Amount]; ok {
		bad, declined = declines[as], true
	}
	switch {
	case declined:
		bad.Type, bad.Status = "card_error", 402
		p.LastError, p.Status, p.PaymentMethod = &bad, "requires_payment_method", ""
		s.emit("payment_intent.payment_failed", p)
		told, copied := bad, *p
		told.Payment = &copied
		return told.answer()
	case method == "pm_slow":
		p.Status, p.PaymentMethod = "processing", method
		s.emit("payment_intent.processing", p)
	default:
		p.PaymentMethod = method
		s.collect(p)
	}
	return ok(p)
}

func (s *Server) collect(p *payment) {
	p.Status, p.AmountReceived, p.LastError = "succeeded", p.Amount, nil
	s.s.Charges++
	s.emit("payment_intent.succeeded", p)
}

func (s *Server) payment(r *http.Request) answer {
	if p := s.s.Payments[r.PathValue("id")]; p != nil {
		return ok(p)
	}
	return missing("payment_intent", r.PathValue("id"))
}

// listPayments is newest first, of one customer if asked, in pages.
func (s *Server) listPayments(r *http.Request) answer {
	q := r.URL.Query()
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit < 1 || limit > 100 {
		limit = 10
	}
	l := list{Object: "list", Data: []any{}, URL: "/v1/payment_intents"}
	started := q.Get("starting_after") == ""
	for _, id := range slices.Backward(s.s.Order) {
		p := s.s.Payments[id]
		switch {
		case !started:
			started = id == q.Get("starting_after")
		case q.Get("customer") != "" && p.Customer != q.Get("customer"):
		case len(l.Data) == limit:
			l.HasMore = true
			return ok(l)
		default:
			l.Data = append(l.Data, p)
		}
	}
	return ok(l)
}

// Finish ends a payment that is in processing, well or not.
func (s *Server) Finish(paymentID string, well bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.s.Payments[paymentID]
	if p == nil || p.Status != "processing" {
		return
	}
	if well {
		s.collect(p)
	} else {
		s.charge(p, "pm_card_visa_chargeDeclined")
	}
	s.save()
}

// Charged says how often a card was really charged, and how much in all.
func (s *Server) Charged() (times int, cents int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.s.Payments {
		cents += p.AmountReceived
	}
	return s.s.Charges, cents
}

// nested reads name[key]=value pairs of a form.
func nested(form url.Values, name string) map[string]string {
	out := map[string]string{}
	for k, v := range form {
		if len(k) > len(name)+2 && k[:len(name)+1] == name+"[" && k[len(k)-1] == ']' {
			out[k[len(name)+1:len(k)-1]] = v[0]
		}
	}
	return out
}
