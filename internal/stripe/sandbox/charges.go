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

// Charges are the payments that were collected.
type Charges struct {
	store   *store
	events  *events
	balance *Balance
	url     string // where browsers reach the pages
}

func (chs *Charges) routes(f *front) {
	f.onGet("/v1/charges/{id}", func(r *http.Request) answer {
		if c := chs.store.Charges.get(r.PathValue("id")); c != nil {
			return ok(c)
		}
		return missing("charge", r.PathValue("id"))
	})
	f.pages.HandleFunc("GET /pay/receipts/{id}", chs.receiptPage)
}

// feeOf is what Stripe keeps of a card payment, in cents: 2.9 % and 30.
func feeOf(cents int64) int64 { return (cents*29+500)/1000 + 30 }

// add takes the money of a payment into the balance.
func (chs *Charges) add(p *payment) *charge {
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
		ReceiptURL:     orNull(chs.url + "/pay/receipts/" + id),
		Status:         "succeeded",
		Created:        chs.store.now(),
		Metadata:       p.Metadata,
	}
	c.BalanceTx = &chs.balance.book("charge", id, c.Currency, c.Amount, feeOf(c.Amount)).ID
	chs.store.Charges.put(id, c)
	chs.events.emit("charge.succeeded", c)
	return c
}

// Total returns how often a card was really charged, and how much in total.
func (chs *Charges) Total() (times int, cents int64) {
	chs.store.mu.Lock()
	defer chs.store.mu.Unlock()
	for _, c := range chs.store.Charges.Objects {
		cents += c.Amount
	}
	return len(chs.store.Charges.Order), cents
}

func (chs *Charges) receiptPage(w http.ResponseWriter, r *http.Request) {
	chs.store.mu.Lock()
	c := chs.store.Charges.get(r.PathValue("id"))
	what := ""
	if c != nil {
		what = "Received " + cents(c.Amount, c.Currency)
	}
	chs.store.mu.Unlock()
	if c == nil {
		http.NotFound(w, r)
		return
	}
	show(w, "receipt", pageData{Title: "Sandbox receipt", What: what})
}
