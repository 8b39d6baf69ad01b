package sandbox

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

type payment struct {
	ID             string            `json:"id"`
	Object         string            `json:"object"`
	Amount         int64             `json:"amount"`
	AmountReceived int64             `json:"amount_received"`
	CaptureMethod  string            `json:"capture_method"`
	Confirmation   string            `json:"confirmation_method"`
	Currency       string            `json:"currency"`
	Customer       *string           `json:"customer"`
	Description    *string           `json:"description"`
	Status         string            `json:"status"`
	PaymentMethod  any               `json:"payment_method"` // an id, null, or the method where it is expanded
	MethodTypes    []string          `json:"payment_method_types"`
	LatestCharge   any               `json:"latest_charge"` // an id, or the charge where it is expanded
	LastError      *apiError         `json:"last_payment_error"`
	NextAction     *nextAction       `json:"next_action"`
	ReceiptEmail   *string           `json:"receipt_email"`
	FutureUsage    *string           `json:"setup_future_usage"`
	CancelReason   *string           `json:"cancellation_reason"`
	Invoice        *string           `json:"invoice"`
	Created        int64             `json:"created"`
	Livemode       bool              `json:"livemode"`
	Metadata       map[string]string `json:"metadata"`
}

// nextAction is what the payer has to do.
type nextAction struct {
	Type     string   `json:"type"`
	Redirect redirect `json:"redirect_to_url"`
}

type redirect struct {
	ReturnURL string `json:"return_url"`
	URL       string `json:"url"`
}

func (s *Server) paymentRoutes() {
	s.onPost("/v1/payment_intents", s.createPayment)
	s.onGet("/v1/payment_intents", func(r *http.Request) answer {
		return pageOf(&s.s.Payments, r, func(q url.Values, p *payment) bool {
			since, err := strconv.ParseInt(q.Get("created[gte]"), 10, 64)
			return (err != nil || p.Created >= since) && (q.Get("customer") == "" || p.Customer != nil &&
				*p.Customer == q.Get("customer"))
		})
	})
	s.onGet("/v1/payment_intents/{id}", func(r *http.Request) answer {
		if p := s.s.Payments.get(r.PathValue("id")); p != nil {
			return ok(s.expanded(p, r.URL.Query()))
		}
		return missing("payment_intent", r.PathValue("id"))
	})
	s.onPost("/v1/payment_intents/{id}/cancel", func(r *http.Request, form url.Values) answer {
		p := s.s.Payments.get(r.PathValue("id"))
		switch {
		case p == nil:
			return missing("payment_intent", r.PathValue("id"))
		case p.Status == "succeeded" || p.Status == "processing" || p.Status == "canceled":
			return apiError{Status: 400, Type: "invalid_request_error", Code: "payment_intent_unexpected_state",
				Message: "You cannot cancel this PaymentIntent because it has a status of " + p.Status + "."}.answer()
		}
		p.Status, p.NextAction, p.CancelReason = "canceled", nil, orNull(form.Get("cancellation_reason"))
		s.emit("payment_intent.canceled", p)
		return ok(p)
	})
	s.pages.HandleFunc("GET /3ds/{id}", s.bankPage)
	s.pages.HandleFunc("POST /3ds/{id}", s.bankClicked)
}

func (s *Server) createPayment(_ *http.Request, form url.Values) answer {
	amount, err := strconv.ParseInt(form.Get("amount"), 10, 64)
	switch {
	case err != nil || amount < 50 || amount > 99999999:
		return invalid("amount", "Amount must be at least 50 cents and no more than 999,999.99")
	case len(form.Get("currency")) != 3:
		return invalid("currency", "Invalid currency")
	case form.Get("customer") != "" && s.s.Customers.get(form.Get("customer")) == nil:
		return missing("customer", form.Get("customer"))
	case form.Get("confirm") == "true" && form.Get("payment_method") == "":
		return invalid("payment_method", "You cannot confirm without a payment method")
	}
	p := s.newPayment(amount, form.Get("currency"), form.Get("customer"), nested(form, "metadata"))
	p.Description, p.ReceiptEmail, p.FutureUsage = orNull(form.Get("description")), orNull(form.Get("receipt_email")),
		orNull(form.Get("setup_future_usage"))
	s.emit("payment_intent.created", p)
	if form.Get("confirm") != "true" {
		return ok(p)
	}
	if form.Get("off_session") != "true" {
		return s.charge(p, form.Get("payment_method"), form.Get("return_url"), form)
	}
	return s.charge(p, form.Get("payment_method"), "", form)
}

func (s *Server) newPayment(amount int64, currency, customer string, meta map[string]string) *payment {
	id := newID("pi")
	return s.s.Payments.put(id, &payment{
		ID:            id,
		Object:        "payment_intent",
		Amount:        amount,
		CaptureMethod: "automatic",
		Confirmation:  "automatic",
		Currency:      currency,
		Customer:      orNull(customer),
		Status:        "requires_payment_method",
		MethodTypes:   []string{"card"},
		Created:       s.now(),
		Metadata:      meta,
	})
}

// charge tries to collect p with a payment method. A bank that asks can do so only where the payer can be sent
// (back: and from there to here); without, it declines.
func (s *Server) charge(p *payment, method, back string, form url.Values) answer {
	m := s.method(method)
	switch {
	case m == nil:
		return missing("PaymentMethod", method)
	case m.Customer != nil && (p.Customer == nil || *p.Customer != *m.Customer):
		return invalid("payment_method", "The payment method belongs to another customer.")
	}
	c := cards[m.Test]
	if !slices.Contains(p.MethodTypes, c.kind()) {
		return invalid("payment_method", "The PaymentMethod provided (%s) is not allowed for this PaymentIntent.", c.kind())
	}
	bad := c.Decline
	if as := declinedAmounts[p.Amount]; as != nil {
		bad = as
	}
	if bad == nil && c.Challenges && back == "" {
		bad = wantsPayer
	}
	switch {
	case bad != nil:
		return s.refuse(p, *bad)
	case c.Challenges:
		p.Status, p.PaymentMethod = "requires_action", m.ID
		p.NextAction = &nextAction{"redirect_to_url", redirect{ReturnURL: back, URL: s.cfg.PublicURL + "/3ds/" + p.ID}}
		s.emit("payment_intent.requires_action", p)
	case c.Slow:
		p.Status, p.PaymentMethod = "processing", m.ID
		s.emit("payment_intent.processing", p)
	default:
		p.PaymentMethod = m.ID
		s.collect(p)
	}
	return ok(s.expanded(p, form))
}

// refuse books a refusal of the card.
func (s *Server) refuse(p *payment, bad apiError) answer {
	p.LastError, p.Status, p.PaymentMethod, p.NextAction = &bad, "requires_payment_method", nil, nil
	s.emit("payment_intent.payment_failed", p)
	s.invoiceRefused(p, bad)
	told, copied := bad, *p
	told.Payment = &copied
	return told.answer()
}

// collect takes the money.
func (s *Server) collect(p *payment) {
	p.Status, p.AmountReceived, p.LastError, p.NextAction = "succeeded", p.Amount, nil, nil
	c := s.newCharge(p)
	p.LatestCharge = c.ID
	if id, is := p.PaymentMethod.(string); is && p.FutureUsage != nil && p.Customer != nil {
		s.attach(s.s.Methods.get(id), *p.Customer)
	}
	s.emit("payment_intent.succeeded", p)
	s.invoiceCollected(p)
}

// expanded is p with what the request asked to be shown whole.
func (s *Server) expanded(p *payment, q url.Values) *payment {
	out := *p
	if id, is := p.LatestCharge.(string); is && expands(q, "latest_charge") {
		out.LatestCharge = s.s.Charges.get(id)
	}
	if id, is := p.PaymentMethod.(string); is && expands(q, "payment_method") {
		out.PaymentMethod = s.s.Methods.get(id)
	}
	return &out
}

func expands(q url.Values, field string) bool {
	for k, v := range q {
		if len(k) > 7 && k[:7] == "expand[" && v[0] == field {
			return true
		}
	}
	return false
}

// Finish ends a payment that is in processing, well or not.
func (s *Server) Finish(paymentID string, well bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.s.Payments.get(paymentID)
	if p == nil || p.Status != "processing" {
		return
	}
	outcome := "failed"
	if well {
		s.collect(p)
		outcome = "succeeded"
	} else {
		s.refuse(p, *genericDecline)
	}
	for id, x := range s.s.Sessions.Objects { // a page that was left before the money came
		if x.Payment != nil && *x.Payment == p.ID && x.Status == "complete" {
			if x = s.s.Sessions.get(id); well {
				x.PayStatus = "paid"
			}
			s.emit("checkout.session.async_payment_"+outcome, x)
		}
	}
	s.save()
}

// Authenticate is the payer answering the bank's question about a payment; asked reports whether there was one.
func (s *Server) Authenticate(paymentID string, well bool) (asked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.s.Payments.get(paymentID)
	if p == nil || p.Status != "requires_action" {
		return false
	}
	if well {
		s.collect(p)
	} else {
		s.refuse(p, *notHim)
	}
	s.save()
	return true
}

// Charged returns how often a card was really charged, and how much in total.
func (s *Server) Charged() (times int, cents int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.s.Charges.Objects {
		cents += c.Amount
	}
	return len(s.s.Charges.Order), cents
}

type charge struct {
	ID             string            `json:"id"`
	Object         string            `json:"object"`
	Amount         int64             `json:"amount"`
	AmountCaptured int64             `json:"amount_captured"`
	AmountRefunded int64             `json:"amount_refunded"`
	BalanceTx      *string           `json:"balance_transaction"`
	Billing        billingDetails    `json:"billing_details"`
	Captured       bool              `json:"captured"`
	Currency       string            `json:"currency"`
	Customer       *string           `json:"customer"`
	Disputed       bool              `json:"disputed"`
	Invoice        *string           `json:"invoice"`
	Paid           bool              `json:"paid"`
	Payment        *string           `json:"payment_intent"`
	PaymentMethod  any               `json:"payment_method"`
	ReceiptEmail   *string           `json:"receipt_email"`
	ReceiptURL     *string           `json:"receipt_url"`
	Refunded       bool              `json:"refunded"`
	Status         string            `json:"status"`
	Created        int64             `json:"created"`
	Livemode       bool              `json:"livemode"`
	Metadata       map[string]string `json:"metadata"`
}

func (s *Server) chargeRoutes() {
	s.onGet("/v1/charges/{id}", func(r *http.Request) answer {
		if c := s.s.Charges.get(r.PathValue("id")); c != nil {
			return ok(c)
		}
		return missing("charge", r.PathValue("id"))
	})
	s.pages.HandleFunc("GET /pay/receipts/{id}", s.receiptPage)
}

// feeOf is what Stripe keeps of a card payment, in cents: 2.9 % and 30.
func feeOf(cents int64) int64 { return (cents*29+500)/1000 + 30 }

// newCharge takes the money of a payment into the balance.
func (s *Server) newCharge(p *payment) *charge {
	id := newID("ch")
	c := &charge{
		ID:             id,
		Object:         "charge",
		Amount:         p.Amount,
		AmountCaptured: p.Amount,
		Captured:       true,
		Currency:       p.Currency,
		Customer:       p.Customer,
		Invoice:        p.Invoice,
		Paid:           true,
		Payment:        &p.ID,
		PaymentMethod:  p.PaymentMethod,
		ReceiptEmail:   p.ReceiptEmail,
		ReceiptURL:     orNull(s.cfg.PublicURL + "/pay/receipts/" + id),
		Status:         "succeeded",
		Created:        s.now(),
		Metadata:       p.Metadata,
	}
	c.BalanceTx = &s.book("charge", id, c.Currency, c.Amount, feeOf(c.Amount)).ID
	s.s.Charges.put(id, c)
	s.emit("charge.succeeded", c)
	return c
}
