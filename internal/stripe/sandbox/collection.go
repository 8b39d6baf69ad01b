package sandbox

import (
	"net/http"
	"net/url"
	"time"
)

// PayHere is the payer paying an invoice on its page with a test card; done reports whether the card was good.
func (ins *Invoices) PayHere(invoiceID, method string) (done bool) {
	ins.store.mu.Lock()
	defer ins.store.mu.Unlock()
	in := ins.store.Invoices.get(invoiceID)
	if in == nil || in.Status != "open" && in.Status != "uncollectible" {
		return false
	}
	p := ins.store.Payments.get(*in.Payment)
	ins.payments.charge(p, method, *in.URL, nil)
	if p.Status == "requires_action" { // who pays there answers their bank
		ins.payments.collect(p)
	}
	ins.store.save()
	return in.Status == "paid"
}

// PaidByHand marks an invoice as paid, as a person can in Stripe's dashboard: the money came another way.
func (ins *Invoices) PaidByHand(invoiceID string) (done bool) {
	ins.store.mu.Lock()
	defer ins.store.mu.Unlock()
	in := ins.store.Invoices.get(invoiceID)
	if in == nil || in.Status != "open" && in.Status != "uncollectible" {
		return false
	}
	ins.payInvoice(in, url.Values{"paid_out_of_band": {"true"}})
	ins.store.save()
	return true
}

// attempt charges an open invoice's card: the one named, or the customer's default.
func (ins *Invoices) attempt(in *invoice, method string) answer {
	if c := ins.store.Customers.get(in.Customer); method == "" && c.Settings.Method != nil {
		method = *c.Settings.Method
	}
	p := ins.store.Payments.get(*in.Payment)
	if m := ins.store.Methods.get(method); m == nil || m.Customer == nil {
		none := apiError{Status: 400, Type: "invalid_request_error", Code: "resource_missing",
			Message: "This customer has no attached payment source or default payment method."}
		ins.refused(p, none)
		return none.answer()
	}
	in.NextAttempt = nil // until the card has answered
	return ins.payments.charge(p, method, "", nil)
}

// refused books that a card did not pay an invoice, which is tried again some days later.
func (ins *Invoices) refused(p *payment, why apiError) {
	if p.Invoice == nil {
		return
	}
	in := ins.store.Invoices.get(*p.Invoice)
	in.Attempts, in.Attempted, in.NextAttempt = in.Attempts+1, true, nil
	if next := ins.store.now() + int64(retryIn/time.Second); in.Advance && in.Attempts < retries && in.Status == "open" {
		in.NextAttempt = &next
	}
	if why.Code == wantsPayer.Code {
		ins.events.emit("invoice.payment_action_required", ins.shown(in))
	}
	ins.events.emit("invoice.payment_failed", ins.shown(in))
	if x := ins.subscriptionOf(in); x != nil && x.Status == "active" {
		x.Status = "past_due"
		ins.events.emit("customer.subscription.updated", x)
	}
}

// collected books that a payment of an invoice has succeeded.
func (ins *Invoices) collected(p *payment) {
	if p.Invoice == nil {
		return
	}
	in := ins.store.Invoices.get(*p.Invoice)
	if id, is := p.LatestCharge.(string); is {
		in.Charge = &id
	}
	in.Attempts++
	ins.isPaid(in, p.AmountReceived)
}

func (ins *Invoices) isPaid(in *invoice, cents int64) {
	now := ins.store.now()
	in.Status, in.Paid, in.AmountPaid, in.Attempted, in.NextAttempt, in.Transitions.Paid = "paid", true, cents, true, nil,
		&now
	if in.OutOfBand {
		ins.givenUp(in, "automatic")
	}
	ins.events.emit("invoice.paid", ins.shown(in))
	ins.events.emit("invoice.payment_succeeded", ins.shown(in))
	if x := ins.subscriptionOf(in); x != nil && x.Status == "past_due" && !ins.owes(x) {
		x.Status = "active"
		ins.events.emit("customer.subscription.updated", x)
	}
}

// owes reports whether a subscription has an invoice whose card was refused.
func (ins *Invoices) owes(x *subscription) bool {
	for _, in := range ins.store.Invoices.Objects {
		if in.Subscription != nil && *in.Subscription == x.ID && in.Status == "open" && in.Attempts > 0 {
			return true
		}
	}
	return false
}

func (ins *Invoices) subscriptionOf(in *invoice) *subscription {
	if in.Subscription == nil {
		return nil
	}
	return ins.store.Subscriptions.get(*in.Subscription)
}

// givenUp cancels the payment of an invoice that is not to be paid any more.
func (ins *Invoices) givenUp(in *invoice, why string) {
	if in.Payment == nil {
		return
	}
	p := ins.store.Payments.get(*in.Payment)
	p.Status, p.CancelReason = "canceled", &why
	ins.events.emit("payment_intent.canceled", p)
}

// page is where a payer sees an invoice, and pays it.
func (ins *Invoices) page(w http.ResponseWriter, r *http.Request) {
	ins.store.mu.Lock()
	in := ins.store.Invoices.get(r.PathValue("id"))
	d := pageData{Title: "Sandbox invoice", Failed: r.URL.Query().Has("failed")}
	name := "receipt"
	if in != nil && in.Number != nil {
		d.What = "Invoice " + *in.Number + " of " + cents(in.Total, in.Currency) + " is " + in.Status + "."
		if in.Status == "open" || in.Status == "uncollectible" {
			name, d.What = "pay", "Pay "+cents(in.AmountDue, in.Currency)+" of invoice "+*in.Number
		}
	}
	ins.store.mu.Unlock()
	if d.What == "" {
		http.NotFound(w, r)
		return
	}
	show(w, name, d)
}

func (ins *Invoices) clicked(w http.ResponseWriter, r *http.Request) {
	to := ins.url + "/pay/invoices/" + r.PathValue("id")
	if !ins.PayHere(r.PathValue("id"), r.FormValue("method")) {
		to += "?failed=1"
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}
