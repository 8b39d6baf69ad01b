package sandbox

import (
	"net/http"
	"net/url"
)

type dispute struct {
	ID         string            `json:"id"`
	Object     string            `json:"object"`
	Amount     int64             `json:"amount"`
	BalanceTxs []*balanceTx      `json:"balance_transactions"`
	Charge     string            `json:"charge"`
	Currency   string            `json:"currency"`
	Evidence   disputeEvidence   `json:"evidence"`
	Details    evidenceDetails   `json:"evidence_details"`
	Refundable bool              `json:"is_charge_refundable"`
	Payment    *string           `json:"payment_intent"`
	Reason     string            `json:"reason"`
	Status     string            `json:"status"`
	Created    int64             `json:"created"`
	Livemode   bool              `json:"livemode"`
	Metadata   map[string]string `json:"metadata"`
}

type disputeEvidence struct {
	Text *string `json:"uncategorized_text"`
}

type evidenceDetails struct {
	DueBy    *int64 `json:"due_by"`
	Has      bool   `json:"has_evidence"`
	PastDue  bool   `json:"past_due"`
	Attempts int    `json:"submission_count"`
}

// disputeFee is what Stripe takes for a dispute, in cents; it stays with Stripe however the dispute ends.
const disputeFee = 1500

func (s *Server) disputeRoutes() {
	s.onGet("/v1/disputes", func(r *http.Request) answer {
		return pageOf(&s.s.Disputes, r, func(q url.Values, d *dispute) bool {
			return q.Get("payment_intent") == "" || d.Payment != nil && *d.Payment == q.Get("payment_intent")
		})
	})
	s.onGet("/v1/disputes/{id}", func(r *http.Request) answer {
		if d := s.s.Disputes.get(r.PathValue("id")); d != nil {
			return ok(d)
		}
		return missing("dispute", r.PathValue("id"))
	})
}

// Dispute is a card's owner taking back a payment, or part of it (cents). It returns the dispute's id, "" when the
// payment cannot be disputed.
func (s *Server) Dispute(paymentID string, cents int64) string {
	return s.dispute(paymentID, cents, "needs_response")
}

// Inquire is a bank asking about a payment (cents of it): no money moves until it becomes a dispute, if it does
// (Escalate).
func (s *Server) Inquire(paymentID string, cents int64) string {
	return s.dispute(paymentID, cents, "warning_needs_response")
}

// Prevent is a dispute that is settled before it becomes one: for the payer, who gets cents back, or with 0 for the
// platform.
func (s *Server) Prevent(paymentID string, cents, back int64) string {
	id := s.dispute(paymentID, cents, "warning_needs_response")
	if id == "" {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.s.Disputes.get(id)
	if back > 0 {
		d.BalanceTxs = []*balanceTx{s.book("adjustment", d.ID, d.Currency, -back, 0)}
	}
	d.Status = "prevented"
	s.emit("charge.dispute.closed", d)
	s.save()
	return id
}

// Escalate ends an inquiry: it becomes a dispute, which takes the money, or is closed.
func (s *Server) Escalate(disputeID string, disputed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.s.Disputes.get(disputeID)
	if d == nil || d.Status != "warning_needs_response" {
		return
	}
	if disputed {
		d.Status = "needs_response"
		d.BalanceTxs = []*balanceTx{s.book("adjustment", d.ID, d.Currency, -d.Amount, disputeFee)}
		s.emit("charge.dispute.updated", d)
		s.emit("charge.dispute.funds_withdrawn", d)
	} else {
		d.Status = "warning_closed"
		s.emit("charge.dispute.closed", d)
	}
	s.save()
}

func (s *Server) dispute(paymentID string, cents int64, status string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.s.Payments.get(paymentID)
	if p == nil || p.LatestCharge == nil {
		return ""
	}
	id, _ := p.LatestCharge.(string)
	c := s.s.Charges.get(id)
	if c == nil || c.Disputed || cents > c.Amount-c.AmountRefunded {
		return ""
	}
	c.Disputed = true
	due := s.now() + 7*24*3600
	d := &dispute{
		ID:       newID("dp"),
		Object:   "dispute",
		Amount:   cents,
		Charge:   c.ID,
		Currency: c.Currency,
		Payment:  &p.ID,
		Reason:   "fraudulent",
		Status:   status,
		Details:  evidenceDetails{DueBy: &due},
		Created:  s.now(),
		Metadata: map[string]string{},
	}
	d.BalanceTxs = []*balanceTx{}
	inquiry := status != "needs_response"
	if d.Refundable = inquiry; !inquiry {
		d.BalanceTxs = append(d.BalanceTxs, s.book("adjustment", d.ID, c.Currency, -cents, disputeFee))
	}
	s.s.Disputes.put(d.ID, d)
	s.emit("charge.dispute.created", d)
	if !inquiry {
		s.emit("charge.dispute.funds_withdrawn", d)
	}
	s.save()
	return d.ID
}

// GiveAgain has the bank give some of a lost dispute's money (cents) again after all.
func (s *Server) GiveAgain(disputeID string, cents int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.s.Disputes.get(disputeID)
	if d == nil || d.Status != "lost" {
		return
	}
	b := s.book("adjustment", d.ID, d.Currency, cents, 0)
	b.Reporting = "dispute_reversal"
	d.BalanceTxs = append(d.BalanceTxs, b)
	s.emit("charge.dispute.funds_reinstated", d)
	s.save()
}

// Decide ends a dispute for or against the platform.
func (s *Server) Decide(disputeID string, won bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.s.Disputes.get(disputeID)
	if d == nil || d.Status != "needs_response" {
		return
	}
	d.Status = "lost"
	if won {
		d.Status = "won"
		b := s.book("adjustment", d.ID, d.Currency, d.Amount, 0)
		b.Reporting = "dispute_reversal"
		d.BalanceTxs = append(d.BalanceTxs, b)
		s.emit("charge.dispute.funds_reinstated", d)
	}
	s.emit("charge.dispute.closed", d)
	s.save()
}

// fraudWarning is a card issuer's word that a charge may be fraudulent.
type fraudWarning struct {
	ID         string  `json:"id"`
	Object     string  `json:"object"`
	Actionable bool    `json:"actionable"`
	Charge     string  `json:"charge"`
	Created    int64   `json:"created"`
	Type       string  `json:"fraud_type"`
	Livemode   bool    `json:"livemode"`
	Payment    *string `json:"payment_intent"`
}

func (s *Server) warningRoutes() {
	s.onGet("/v1/radar/early_fraud_warnings/{id}", func(r *http.Request) answer {
		w := s.s.Warnings.get(r.PathValue("id"))
		if w == nil {
			return missing("issuer fraud record", r.PathValue("id"))
		}
		c := s.s.Charges.get(w.Charge)
		w.Actionable = !c.Disputed && !c.Refunded
		return ok(w)
	})
}

// Warn is a card's issuer reporting that a payment may be fraudulent. It returns the warning's id, "" when nothing was
// paid.
func (s *Server) Warn(paymentID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.s.Payments.get(paymentID)
	if p == nil || p.LatestCharge == nil {
		return ""
	}
	charge, _ := p.LatestCharge.(string)
	w := &fraudWarning{
		ID:         newID("issfr"),
		Object:     "radar.early_fraud_warning",
		Actionable: true,
		Charge:     charge,
		Created:    s.now(),
		Type:       "made_with_stolen_card",
		Payment:    &p.ID,
	}
	s.s.Warnings.put(w.ID, w)
	s.emit("radar.early_fraud_warning.created", w)
	s.save()
	return w.ID
}
