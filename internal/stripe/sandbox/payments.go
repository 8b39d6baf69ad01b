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

// Payments are the payment intents.
type Payments struct {
	store   *store
	events  *events
	methods *methods
	charges *Charges
	url     string // where browsers reach the pages

	// What becomes of a payment is for its invoice, too, if it has one. See Invoices.
	refused   func(p *payment, why apiError)
	collected func(p *payment)
}

func (ps *Payments) routes(f *front) {
	f.onPost("/v1/payment_intents", ps.create)
	f.onGet("/v1/payment_intents", func(r *http.Request) answer {
		return pageOf(&ps.store.Payments, r, func(q url.Values, p *payment) bool {
			since, err := strconv.ParseInt(q.Get("created[gte]"), 10, 64)
			return (err != nil || p.Created >= since) && (q.Get("customer") == "" || p.Customer != nil &&
				*p.Customer == q.Get("customer"))
		})
	})
	f.onGet("/v1/payment_intents/{id}", func(r *http.Request) answer {
		if p := ps.store.Payments.get(r.PathValue("id")); p != nil {
			return ok(ps.expanded(p, r.URL.Query()))
		}
		return missing("payment_intent", r.PathValue("id"))
	})
	f.onPost("/v1/payment_intents/{id}/cancel", func(r *http.Request, form url.Values) answer {
		p := ps.store.Payments.get(r.PathValue("id"))
		switch {
		case p == nil:
			return missing("payment_intent", r.PathValue("id"))
		case p.Status == "succeeded" || p.Status == "processing" || p.Status == "canceled":
			return apiError{Status: 400, Type: "invalid_request_error", Code: "payment_intent_unexpected_state",
				Message: "You cannot cancel this PaymentIntent because it has a status of " + p.Status + "."}.answer()
		}
		p.Status, p.NextAction, p.CancelReason = "canceled", nil, orNull(form.Get("cancellation_reason"))
		ps.events.emit("payment_intent.canceled", p)
		return ok(p)
	})
	f.pages.HandleFunc("GET /3ds/{id}", ps.bankPage)
	f.pages.HandleFunc("POST /3ds/{id}", ps.bankClicked)
}

func (ps *Payments) create(_ *http.Request, form url.Values) answer {
	amount, err := strconv.ParseInt(form.Get("amount"), 10, 64)
	switch {
	case err != nil || amount < 50 || amount > 99999999:
		return invalid("amount", "Amount must be at least 50 cents and no more than 999,999.99")
	case len(form.Get("currency")) != 3:
		return invalid("currency", "Invalid currency")
	case form.Get("customer") != "" && ps.store.Customers.get(form.Get("customer")) == nil:
		return missing("customer", form.Get("customer"))
	case form.Get("confirm") == "true" && form.Get("payment_method") == "":
		return invalid("payment_method", "You cannot confirm without a payment method")
	}
	p := ps.add(amount, form.Get("currency"), form.Get("customer"), nested(form, "metadata"))
	p.Description, p.ReceiptEmail, p.FutureUsage = orNull(form.Get("description")), orNull(form.Get("receipt_email")),
		orNull(form.Get("setup_future_usage"))
	ps.events.emit("payment_intent.created", p)
	if form.Get("confirm") != "true" {
		return ok(p)
	}
	if form.Get("off_session") != "true" {
		return ps.charge(p, form.Get("payment_method"), form.Get("return_url"), form)
	}
	return ps.charge(p, form.Get("payment_method"), "", form)
}

func (ps *Payments) add(amount int64, currency, customer string, meta map[string]string) *payment {
	id := newID("pi")
	return ps.store.Payments.put(id, &payment{
		ID:            id,
		Object:        "payment_intent",
		Amount:        amount,
		CaptureMethod: "automatic",
		Confirmation:  "automatic",
		Currency:      currency,
		Customer:      orNull(customer),
		Status:        "requires_payment_method",
		MethodTypes:   []string{"card"},
		Created:       ps.store.now(),
		Metadata:      meta,
	})
}

// charge tries to collect p with a payment method. A bank that asks can do so only where the payer can be sent
// (back: and from there to here); without, it declines.
func (ps *Payments) charge(p *payment, method, back string, form url.Values) answer {
	m := ps.methods.named(method)
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
		return ps.refuse(p, *bad)
	case c.Challenges:
		p.Status, p.PaymentMethod = "requires_action", m.ID
		p.NextAction = &nextAction{"redirect_to_url", redirect{ReturnURL: back, URL: ps.url + "/3ds/" + p.ID}}
		ps.events.emit("payment_intent.requires_action", p)
	case c.Slow:
		p.Status, p.PaymentMethod = "processing", m.ID
		ps.events.emit("payment_intent.processing", p)
	default:
		p.PaymentMethod = m.ID
		ps.collect(p)
	}
	return ok(ps.expanded(p, form))
}

// refuse books a refusal of the card.
func (ps *Payments) refuse(p *payment, bad apiError) answer {
	p.LastError, p.Status, p.PaymentMethod, p.NextAction = &bad, "requires_payment_method", nil, nil
	ps.events.emit("payment_intent.payment_failed", p)
	ps.refused(p, bad)
	told, copied := bad, *p
	told.Payment = &copied
	return told.answer()
}

// collect takes the money.
func (ps *Payments) collect(p *payment) {
	p.Status, p.AmountReceived, p.LastError, p.NextAction = "succeeded", p.Amount, nil, nil
	c := ps.charges.add(p)
	p.LatestCharge = c.ID
	if id, is := p.PaymentMethod.(string); is && p.FutureUsage != nil && p.Customer != nil {
		ps.methods.attach(ps.store.Methods.get(id), *p.Customer)
	}
	ps.events.emit("payment_intent.succeeded", p)
	ps.collected(p)
}

// expanded is p with what the request asked to be shown whole.
func (ps *Payments) expanded(p *payment, q url.Values) *payment {
	out := *p
	if id, is := p.LatestCharge.(string); is && expands(q, "latest_charge") {
		out.LatestCharge = ps.store.Charges.get(id)
	}
	if id, is := p.PaymentMethod.(string); is && expands(q, "payment_method") {
		out.PaymentMethod = ps.store.Methods.get(id)
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
func (ps *Payments) Finish(paymentID string, well bool) {
	ps.store.mu.Lock()
	defer ps.store.mu.Unlock()
	p := ps.store.Payments.get(paymentID)
	if p == nil || p.Status != "processing" {
		return
	}
	outcome := "failed"
	if well {
		ps.collect(p)
		outcome = "succeeded"
	} else {
		ps.refuse(p, *genericDecline)
	}
	for id, x := range ps.store.Sessions.Objects { // a page that was left before the money came
		if x.Payment != nil && *x.Payment == p.ID && x.Status == "complete" {
			if x = ps.store.Sessions.get(id); well {
				x.PayStatus = "paid"
			}
			ps.events.emit("checkout.session.async_payment_"+outcome, x)
		}
	}
	ps.store.save()
}

// Authenticate is the payer answering the bank's question about a payment; asked reports whether there was one.
func (ps *Payments) Authenticate(paymentID string, well bool) (asked bool) {
	ps.store.mu.Lock()
	defer ps.store.mu.Unlock()
	p := ps.store.Payments.get(paymentID)
	if p == nil || p.Status != "requires_action" {
		return false
	}
	if well {
		ps.collect(p)
	} else {
		ps.refuse(p, *notHim)
	}
	ps.store.save()
	return true
}

// bankPage is the bank asking whether it is really the card's owner who pays.
func (ps *Payments) bankPage(w http.ResponseWriter, r *http.Request) {
	ps.store.mu.Lock()
	p := ps.store.Payments.get(r.PathValue("id"))
	what := ""
	if p != nil {
		what = "Your bank asks: do you pay " + cents(p.Amount, p.Currency) + "?"
	}
	ps.store.mu.Unlock()
	if p == nil {
		http.NotFound(w, r)
		return
	}
	show(w, "bank", pageData{Title: "Sandbox bank", What: what})
}

func (ps *Payments) bankClicked(w http.ResponseWriter, r *http.Request) {
	ps.store.mu.Lock()
	back := ""
	if p := ps.store.Payments.get(r.PathValue("id")); p != nil && p.NextAction != nil {
		back = p.NextAction.Redirect.ReturnURL
	}
	ps.store.mu.Unlock()
	if !ps.Authenticate(r.PathValue("id"), r.FormValue("answer") == "yes") {
		http.NotFound(w, r)
		return
	}
	http.Redirect(w, r, back, http.StatusSeeOther)
}
