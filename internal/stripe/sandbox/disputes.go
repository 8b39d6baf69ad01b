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

// Disputes are the payments that cards' owners took back, and their banks' inquiries.
type Disputes struct {
	store   *store
	events  *events
	balance *Balance
}

func (ds *Disputes) routes(f *front) {
	f.onGet("/v1/disputes", func(r *http.Request) answer {
		return pageOf(&ds.store.Disputes, r, func(q url.Values, d *dispute) bool {
			return q.Get("payment_intent") == "" || d.Payment != nil && *d.Payment == q.Get("payment_intent")
		})
	})
	f.onGet("/v1/disputes/{id}", func(r *http.Request) answer {
		if d := ds.store.Disputes.get(r.PathValue("id")); d != nil {
			return ok(d)
		}
		return missing("dispute", r.PathValue("id"))
	})
}

// Open is a card's owner taking back a payment, or part of it (cents). It returns the dispute's id, "" when the
// payment cannot be disputed.
func (ds *Disputes) Open(paymentID string, cents int64) string {
	return ds.add(paymentID, cents, "needs_response")
}

// Inquire is a bank asking about a payment (cents of it): no money moves until it becomes a dispute, if it does
// (Escalate).
func (ds *Disputes) Inquire(paymentID string, cents int64) string {
	return ds.add(paymentID, cents, "warning_needs_response")
}

// Prevent is a dispute that is settled before it becomes one: for the payer, who gets cents back, or with 0 for the
// platform.
func (ds *Disputes) Prevent(paymentID string, cents, back int64) string {
	id := ds.add(paymentID, cents, "warning_needs_response")
	if id == "" {
		return ""
	}
	ds.store.mu.Lock()
	defer ds.store.mu.Unlock()
	d := ds.store.Disputes.get(id)
	if back > 0 {
		d.BalanceTxs = []*balanceTx{ds.balance.book("adjustment", d.ID, d.Currency, -back, 0)}
	}
	d.Status = "prevented"
	ds.events.emit("charge.dispute.closed", d)
	ds.store.save()
	return id
}

// Escalate ends an inquiry: it becomes a dispute, which takes the money, or is closed.
func (ds *Disputes) Escalate(disputeID string, disputed bool) {
	ds.store.mu.Lock()
	defer ds.store.mu.Unlock()
	d := ds.store.Disputes.get(disputeID)
	if d == nil || d.Status != "warning_needs_response" {
		return
	}
	if disputed {
		d.Status = "needs_response"
		d.BalanceTxs = []*balanceTx{ds.balance.book("adjustment", d.ID, d.Currency, -d.Amount, disputeFee)}
		ds.events.emit("charge.dispute.updated", d)
		ds.events.emit("charge.dispute.funds_withdrawn", d)
	} else {
		d.Status = "warning_closed"
		ds.events.emit("charge.dispute.closed", d)
	}
	ds.store.save()
}

func (ds *Disputes) add(paymentID string, cents int64, status string) string {
	ds.store.mu.Lock()
	defer ds.store.mu.Unlock()
	p := ds.store.Payments.get(paymentID)
	if p == nil || p.LatestCharge == nil {
		return ""
	}
	id, _ := p.LatestCharge.(string)
	c := ds.store.Charges.get(id)
	if c == nil || c.Disputed || cents > c.Amount-c.AmountRefunded {
		return ""
	}
	c.Disputed = true
	due := ds.store.now() + 7*24*3600
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
		Created:  ds.store.now(),
		Metadata: map[string]string{},
	}
	d.BalanceTxs = []*balanceTx{}
	inquiry := status != "needs_response"
	if d.Refundable = inquiry; !inquiry {
		d.BalanceTxs = append(d.BalanceTxs, ds.balance.book("adjustment", d.ID, c.Currency, -cents, disputeFee))
	}
	ds.store.Disputes.put(d.ID, d)
	ds.events.emit("charge.dispute.created", d)
	if !inquiry {
		ds.events.emit("charge.dispute.funds_withdrawn", d)
	}
	ds.store.save()
	return d.ID
}

// GiveAgain has the bank give some of a lost dispute's money (cents) again after all.
func (ds *Disputes) GiveAgain(disputeID string, cents int64) {
	ds.store.mu.Lock()
	defer ds.store.mu.Unlock()
	d := ds.store.Disputes.get(disputeID)
	if d == nil || d.Status != "lost" {
		return
	}
	b := ds.balance.book("adjustment", d.ID, d.Currency, cents, 0)
	b.Reporting = "dispute_reversal"
	d.BalanceTxs = append(d.BalanceTxs, b)
	ds.events.emit("charge.dispute.funds_reinstated", d)
	ds.store.save()
}

// Decide ends a dispute for or against the platform.
func (ds *Disputes) Decide(disputeID string, won bool) {
	ds.store.mu.Lock()
	defer ds.store.mu.Unlock()
	d := ds.store.Disputes.get(disputeID)
	if d == nil || d.Status != "needs_response" {
		return
	}
	d.Status = "lost"
	if won {
		d.Status = "won"
		b := ds.balance.book("adjustment", d.ID, d.Currency, d.Amount, 0)
		b.Reporting = "dispute_reversal"
		d.BalanceTxs = append(d.BalanceTxs, b)
		ds.events.emit("charge.dispute.funds_reinstated", d)
	}
	ds.events.emit("charge.dispute.closed", d)
	ds.store.save()
}
