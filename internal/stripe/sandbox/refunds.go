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

// Refunds are the payments that were given back.
type Refunds struct {
	store     *store
	events    *events
	balance   *Balance
	needFunds bool // refunds of more than is available stay pending
}

func (rs *Refunds) routes(f *front) {
	f.onPost("/v1/refunds", rs.create)
	f.onGet("/v1/refunds", func(r *http.Request) answer {
		return pageOf(&rs.store.Refunds, r, func(q url.Values, x *refund) bool {
			return q.Get("payment_intent") == "" || x.Payment != nil && *x.Payment == q.Get("payment_intent")
		})
	})
	f.onGet("/v1/refunds/{id}", func(r *http.Request) answer {
		if x := rs.store.Refunds.get(r.PathValue("id")); x != nil {
			return ok(x)
		}
		return missing("refund", r.PathValue("id"))
	})
}

func (rs *Refunds) create(_ *http.Request, form url.Values) answer {
	p := rs.store.Payments.get(form.Get("payment_intent"))
	if p == nil {
		return missing("payment_intent", form.Get("payment_intent"))
	}
	id, _ := p.LatestCharge.(string)
	c := rs.store.Charges.get(id)
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
		Created:  rs.store.now(),
		Metadata: nested(form, "metadata"),
	}
	if rs.waits(c, amount) {
		x.Status = "pending" // the balance is not changed yet
	} else {
		x.BalanceTx = &rs.balance.book("refund", x.ID, c.Currency, -amount, 0).ID
	}
	c.AmountRefunded += amount
	c.Refunded = c.AmountRefunded == c.Amount
	rs.store.Refunds.put(x.ID, x)
	rs.events.emit("charge.refunded", c)
	rs.events.emit("refund.created", x)
	return ok(x)
}

// waits reports whether a refund stays pending: by its test card, or because it needs more than is available.
func (rs *Refunds) waits(c *charge, cents int64) bool {
	id, _ := c.PaymentMethod.(string)
	if m := rs.store.Methods.get(id); m != nil && cards[m.Test].RefundsWait {
		return true
	}
	return rs.needFunds && cents > rs.balance.available(c.Currency)
}

// NeedFunds keeps refunds pending that need more than is available, as Stripe does for an account that cannot be below
// zero.
func (rs *Refunds) NeedFunds() {
	rs.store.mu.Lock()
	defer rs.store.mu.Unlock()
	rs.needFunds = true
}

// Finish ends a pending refund: it succeeds, or fails without ever having changed the balance.
func (rs *Refunds) Finish(refundID string, well bool) {
	rs.store.mu.Lock()
	defer rs.store.mu.Unlock()
	x := rs.store.Refunds.get(refundID)
	if x == nil || x.Status != "pending" {
		return
	}
	if x.Status = "succeeded"; well {
		x.BalanceTx = &rs.balance.book("refund", x.ID, x.Currency, -x.Amount, 0).ID
	} else {
		x.Status, x.FailureReason = "failed", orNull("insufficient_funds")
		c := rs.store.Charges.get(*x.Charge)
		c.AmountRefunded -= x.Amount
		c.Refunded = false
	}
	rs.events.emit("refund.updated", x)
	rs.events.emit("charge.refund.updated", x)
	rs.store.save()
}

// ByHand refunds a payment, or a part of it (cents), as a person can in Stripe's dashboard. It returns the
// refund's id, "" when it cannot be given back.
func (rs *Refunds) ByHand(paymentID string, cents int64) string {
	rs.store.mu.Lock()
	defer rs.store.mu.Unlock()
	a := rs.create(nil, url.Values{"payment_intent": {paymentID}, "amount": {strconv.FormatInt(cents, 10)}})
	if a.Status != http.StatusOK {
		return ""
	}
	rs.store.save()
	return rs.store.Refunds.Order[len(rs.store.Refunds.Order)-1]
}

// Fail is a bank sending a refund back, days later.
func (rs *Refunds) Fail(refundID string) {
	rs.store.mu.Lock()
	defer rs.store.mu.Unlock()
	x := rs.store.Refunds.get(refundID)
	if x == nil || x.Status != "succeeded" {
		return
	}
	x.Status, x.FailureReason = "failed", orNull("expired_or_canceled_card")
	c := rs.store.Charges.get(*x.Charge)
	c.AmountRefunded -= x.Amount
	c.Refunded = false
	x.FailureTx = &rs.balance.book("refund_failure", x.ID, x.Currency, x.Amount, 0).ID
	rs.events.emit("charge.refund.updated", x)
	rs.store.save()
}

// IDs are the ids of all refunds, oldest first.
func (rs *Refunds) IDs() []string {
	rs.store.mu.Lock()
	defer rs.store.mu.Unlock()
	return append([]string(nil), rs.store.Refunds.Order...)
}
