package stripetest

import (
	"html/template"
	"net/http"
	"net/url"
	"strconv"
)

type session struct {
	ID         string `json:"id"`
	Object     string `json:"object"`
	Amount     int64  `json:"amount_total"`
	Currency   string `json:"currency"`
	Customer   string `json:"customer,omitempty"`
	Reference  string `json:"client_reference_id,omitempty"`
	Status     string `json:"status"` // open, complete, expired
	PayStatus  string `json:"payment_status"`
	Payment    string `json:"payment_intent,omitempty"`
	SuccessURL string `json:"success_url"`
	CancelURL  string `json:"cancel_url"`
	URL        string `json:"url,omitempty"`
	Created    int64  `json:"created"`
	// what the payment will be made with
	PaymentMeta map[string]string `json:"x_payment_metadata"`
}

func (s *Server) createSession(form url.Values) answer {
	amount, err := strconv.ParseInt(form.Get("line_items[0][price_data][unit_amount]"), 10, 64)
	if err != nil || amount < 50 || form.Get("mode") != "payment" {
		return invalid("line_items", "a payment of at least 50 cents is wanted")
	}
	if c := form.Get("customer"); c != "" && s.s.Customers[c] == nil {
		return missing("customer", c)
	}
	x := &session{
		ID: newID("cs_test"), Object: "checkout.session", Amount: amount, Currency: form.Get("line_items[0][price_data][currency]"),
		Customer: form.Get("customer"), Reference: form.Get("client_reference_id"), Status: "open", PayStatus: "unpaid",
		SuccessURL: form.Get("success_url"), CancelURL: form.Get("cancel_url"), Created: s.cfg.Now().Unix(),
		PaymentMeta: nested(form, "payment_intent_data[metadata]"),
	}
	x.URL = s.cfg.PublicURL + "/pay/" + x.ID
	s.s.Sessions[x.ID] = x
	return ok(x)
}

func (s *Server) session(r *http.Request) answer {
	if x := s.s.Sessions[r.PathValue("id")]; x != nil {
		return ok(x)
	}
	return missing("checkout session", r.PathValue("id"))
}

// Pay is the payer paying on the checkout page with a payment method; paid says whether the card was good.
func (s *Server) Pay(sessionID, method string) (paid bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.s.Sessions[sessionID]
	if x == nil || x.Status != "open" {
		return false
	}
	p := s.s.Payments[x.Payment]
	if p == nil { // the first try makes the payment, later ones go on with it
		p = &payment{ID: newID("pi"), Object: "payment_intent", Amount: x.Amount, Currency: x.Currency, Customer: x.Customer,
			Status: "requires_payment_method", Created: s.cfg.Now().Unix(), Metadata: x.PaymentMeta}
		x.Payment = p.ID
		s.s.Payments[p.ID] = p
		s.s.Order = append(s.s.Order, p.ID)
	}
	if a := s.charge(p, method); a.Status == 200 {
		x.Status, x.PayStatus, x.URL = "complete", "paid", ""
		s.emit("checkout.session.completed", x)
		paid = true
	}
	s.save()
	return paid
}

// Expire ends a checkout page nobody paid on.
func (s *Server) Expire(sessionID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.s.Sessions[sessionID]; x != nil && x.Status == "open" {
		x.Status, x.URL = "expired", ""
		s.emit("checkout.session.expired", x)
		s.save()
	}
}

var page = template.Must(template.New("pay").Parse(`<!doctype html><html lang="en"><meta charset="utf-8"><title>Sandbox checkout</title>
<body><h1>Sandbox checkout</h1><p>This is not Stripe: no real money moves.</p>
<p>{{.Whole}}.{{.Cents}} {{.Currency}}</p><form method="post">
<button name="method" value="pm_card_visa">Pay</button> <button name="method" value="pm_card_visa_chargeDeclined">Pay with a bad card</button>
</form><p><a href="{{.Back}}">Back</a></p></body></html>`))

func (s *Server) payPage(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	x := s.s.Sessions[r.PathValue("id")]
	s.mu.Unlock()
	if x == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Execute(w, map[string]string{ // a browser that has gone away sees nothing
		"Whole": strconv.FormatInt(x.Amount/100, 10), "Cents": strconv.FormatInt(100+x.Amount%100, 10)[1:], "Currency": x.Currency, "Back": x.CancelURL})
}

func (s *Server) payClicked(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	x := s.s.Sessions[r.PathValue("id")]
	s.mu.Unlock()
	switch {
	case x == nil:
		http.NotFound(w, r)
	case s.Pay(x.ID, r.FormValue("method")):
		http.Redirect(w, r, x.SuccessURL, http.StatusSeeOther)
	default:
		http.Redirect(w, r, r.URL.Path, http.StatusSeeOther)
	}
}
