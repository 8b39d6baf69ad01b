package sandbox

import (
	"net/http"
	"net/url"
	"strconv"
)

type refund struct {
	ID            string            `json:"id"`
	Object        string            `json:"object"`
	Amount        int64             `json:"amount"`
	BalanceTx     *string           `json:"balance_transaction"`
	Charge        *string           `json:"charge"`
	Currency      string            `json:"currency"`
	FailureReason *string           `json:"failure_reason,omitempty"`
	FailureTx     *string           `json:"failure_balance_transaction,omitempty"`
	Payment       *string           `json:"payment_intent"`
	Reason        *string           `json:"reason"`
	Status        string            `json:"status"`
	Created       int64             `json:"created"`
	Metadata      map[string]string `json:"metadata"`
}

func (s *Server) refundRoutes() {
	s.onPost("/v1/refunds", s.createRefund)
	s.onGet("/v1/refunds", func(r *http.Request) answer {
		return pageOf(&s.s.Refunds, r, func(q url.Values, x *refund) bool {
			return q.Get("payment_intent") == "" || x.Payment != nil && *x.Payment == q.Get("payment_intent")
		})
	})
	s.onGet("/v1/refunds/{id}", func(r *http.Request) answer {
		if x := s.s.Refunds.get(r.PathValue("id")); x != nil {
			return ok(x)
		}
		return missing("refund", r.PathValue("id"))
	})
}

func (s *Server) createRefund(_ *http.Request, form url.Values) answer {
	p := s.s.Payments.get(form.Get("payment_intent"))
	if p == nil {
		return missing("payment_intent", form.Get("payment_intent"))
	}
	id, _ := p.LatestCharge.(string)
	c := s.s.Charges.get(id)
	if c == nil {
		return invalid("payment_intent", "This PaymentIntent does not have a successful charge to refund.")
	}
	amount := c.Amount - c.AmountRefunded
	if a := form.Get("amount"); a != "" {
		n, err := strconv.ParseInt(a, 10, 64)
		if err != nil || n < 1 {
			return invalid("amount", "Invalid positive integer")
		}
		amount = n
	}
	refused := apiError{Status: 400, Type: "invalid_request_error"}
	switch {
	case c.Disputed:
		refused.Code, refused.Message = "charge_disputed", "The charge has been charged back; cannot issue a refund."
		return refused.answer()
	case c.AmountRefunded == c.Amount:
		refused.Code, refused.Message = "charge_already_refunded", "Charge has already been refunded."
		return refused.answer()
	case amount > c.Amount-c.AmountRefunded:
		return invalid("amount", "Refund amount is greater than unrefunded amount on charge")
	}
	x := &refund{
		ID:       newID("re"),
		Object:   "refund",
		Amount:   amount,
		Charge:   &c.ID,
		Currency: c.Currency,
		Payment:  &p.ID,
		Status:   "succeeded",
		Reason:   orNull(form.Get("reason")),
		Created:  s.now(),
		Metadata: nested(form, "metadata"),
	}
	if s.refundWaits(c, amount) {
		x.Status = "pending" // the balance is not changed yet
	} else {
		x.BalanceTx = &s.book("refund", x.ID, c.Currency, -amount, 0).ID
	}
	c.AmountRefunded += amount
	c.Refunded = c.AmountRefunded == c.Amount
	s.s.Refunds.put(x.ID, x)
	s.emit("charge.refunded", c)
	s.emit("refund.created", x)
	return ok(x)
}

// refundWaits reports whether a refund stays pending: by its test card, or because it needs more than is available.
func (s *Server) refundWaits(c *charge, cents int64) bool {
	id, _ := c.PaymentMethod.(string)
	if m := s.s.Methods.get(id); m != nil && cards[m.Test].RefundsWait {
		return true
	}
	return s.needFunds && cents > s.available(c.Currency)
}

// NeedFunds keeps refunds pending that need more than is available, as Stripe does for an account that cannot be below
// zero.
func (s *Server) NeedFunds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needFunds = true
}

// FinishRefund ends a pending refund: it succeeds, or fails without ever having changed the balance.
func (s *Server) FinishRefund(refundID string, well bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.s.Refunds.get(refundID)
	if x == nil || x.Status != "pending" {
		return
	}
	if x.Status = "succeeded"; well {
		x.BalanceTx = &s.book("refund", x.ID, x.Currency, -x.Amount, 0).ID
	} else {
		x.Status, x.FailureReason = "failed", orNull("insufficient_funds")
		c := s.s.Charges.get(*x.Charge)
		c.AmountRefunded -= x.Amount
		c.Refunded = false
	}
	s.emit("refund.updated", x)
	s.emit("charge.refund.updated", x)
	s.save()
}

// RefundByHand refunds a payment, or a part of it (cents), as a person can in Stripe's dashboard. It returns the
// refund's id, "" when it cannot be given back.
func (s *Server) RefundByHand(paymentID string, cents int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.createRefund(nil, url.Values{"payment_intent": {paymentID}, "amount": {strconv.FormatInt(cents, 10)}})
	if a.Status != http.StatusOK {
		return ""
	}
	s.save()
	return s.s.Refunds.Order[len(s.s.Refunds.Order)-1]
}

// FailRefund is a bank sending a refund back, days later.
func (s *Server) FailRefund(refundID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.s.Refunds.get(refundID)
	if x == nil || x.Status != "succeeded" {
		return
	}
	x.Status, x.FailureReason = "failed", orNull("expired_or_canceled_card")
	c := s.s.Charges.get(*x.Charge)
	c.AmountRefunded -= x.Amount
	c.Refunded = false
	x.FailureTx = &s.book("refund_failure", x.ID, x.Currency, x.Amount, 0).ID
	s.emit("charge.refund.updated", x)
	s.save()
}

// Refunds are the ids of all refunds, oldest first.
func (s *Server) Refunds() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.s.Refunds.Order...)
}
