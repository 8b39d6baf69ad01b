package sandbox

import "net/http"

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

// Warnings are the early fraud warnings.
type Warnings struct {
	store  *store
	events *events
}

func (ws *Warnings) routes(f *front) {
	f.onGet("/v1/radar/early_fraud_warnings/{id}", func(r *http.Request) answer {
		w := ws.store.Warnings.get(r.PathValue("id"))
		if w == nil {
			return missing("issuer fraud record", r.PathValue("id"))
		}
		c := ws.store.Charges.get(w.Charge)
		w.Actionable = !c.Disputed && !c.Refunded
		return ok(w)
	})
}

// Warn is a card's issuer reporting that a payment may be fraudulent. It returns the warning's id, "" when nothing was
// paid.
func (ws *Warnings) Warn(paymentID string) string {
	ws.store.mu.Lock()
	defer ws.store.mu.Unlock()
	p := ws.store.Payments.get(paymentID)
	if p == nil || p.LatestCharge == nil {
		return ""
	}
	charge, _ := p.LatestCharge.(string)
	w := &fraudWarning{
		ID:         newID("issfr"),
		Object:     "radar.early_fraud_warning",
		Actionable: true,
		Charge:     charge,
		Created:    ws.store.now(),
		Type:       "made_with_stolen_card",
		Payment:    &p.ID,
	}
	ws.store.Warnings.put(w.ID, w)
	ws.events.emit("radar.early_fraud_warning.created", w)
	ws.store.save()
	return w.ID
}
