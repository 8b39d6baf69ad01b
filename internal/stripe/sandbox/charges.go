package sandbox

import "net/http"

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
