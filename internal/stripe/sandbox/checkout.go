package sandbox

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

type session struct {
	ID             string            `json:"id"`
	Object         string            `json:"object"`
	Amount         *int64            `json:"amount_total"`
	AutomaticTax   automaticTax      `json:"automatic_tax"`
	Currency       *string           `json:"currency"`
	CustomFields   []any             `json:"custom_fields"`
	CustomText     struct{}          `json:"custom_text"`
	Customer       *string           `json:"customer"`
	Reference      *string           `json:"client_reference_id"`
	ExpiresAt      int64             `json:"expires_at"`
	MethodTypes    []string          `json:"payment_method_types"`
	Mode           string            `json:"mode"`
	Status         string            `json:"status"` // open, complete, expired
	PayStatus      string            `json:"payment_status"`
	Payment        *string           `json:"payment_intent"`
	Setup          *string           `json:"setup_intent"`
	Shipping       []any             `json:"shipping_options"`
	SuccessURL     string            `json:"success_url"`
	CancelURL      string            `json:"cancel_url"`
	URL            *string           `json:"url"`
	Created        int64             `json:"created"`
	Livemode       bool              `json:"livemode"`
	PaymentMeta    map[string]string `json:"x_payment_metadata,omitempty"` // what the payment will be made with
	PaymentUsage   string            `json:"x_future_usage,omitempty"`
	PaymentReceipt string            `json:"x_receipt_email,omitempty"`
}

type automaticTax struct {
	Enabled bool    `json:"enabled"`
	Status  *string `json:"status"`
}

// Checkout is the pages on which payers pay, or save a card.
type Checkout struct {
	store    *store
	events   *events
	payments *Payments
	setups   *setups
	url      string // where browsers reach the pages
}

func (co *Checkout) routes(f *front) {
	f.onPost("/v1/checkout/sessions", co.create)
	f.onGet("/v1/checkout/sessions/{id}", func(r *http.Request) answer {
		if x := co.store.Sessions.get(r.PathValue("id")); x != nil {
			return ok(x)
		}
		return missing("checkout session", r.PathValue("id"))
	})
	f.pages.HandleFunc("GET /pay/{id}", co.page)
	f.pages.HandleFunc("POST /pay/{id}", co.clicked)
}

func (co *Checkout) create(_ *http.Request, form url.Values) answer {
	if c := form.Get("customer"); c != "" && co.store.Customers.get(c) == nil {
		return missing("customer", c)
	}
	x := &session{
		ID:           newID("cs_test"),
		Object:       "checkout.session",
		CustomFields: []any{},
		Customer:     orNull(form.Get("customer")),
		Reference:    orNull(form.Get("client_reference_id")),
		ExpiresAt:    co.store.now() + 24*3600,
		MethodTypes:  listed(form, "payment_method_types"),
		Mode:         form.Get("mode"),
		Status:       "open",
		PayStatus:    "unpaid",
		Shipping:     []any{},
		SuccessURL:   form.Get("success_url"),
		CancelURL:    form.Get("cancel_url"),
		Created:      co.store.now(),
	}
	if x.MethodTypes == nil {
		x.MethodTypes = dashboardMethods
	}
	switch x.Mode {
	case "payment":
		amount, err := strconv.ParseInt(form.Get("line_items[0][price_data][unit_amount]"), 10, 64)
		if err != nil || amount < 50 {
			return invalid("line_items", "a payment of at least 50 cents is wanted")
		}
		x.Amount, x.Currency = &amount, orNull(form.Get("line_items[0][price_data][currency]"))
		x.PaymentMeta = nested(form, "payment_intent_data[metadata]")
		x.PaymentUsage = form.Get("payment_intent_data[setup_future_usage]")
		x.PaymentReceipt = form.Get("payment_intent_data[receipt_email]")
	case "setup":
		x.PayStatus = "no_payment_required"
		x.Setup = &co.setups.add(form.Get("customer"), nested(form, "setup_intent_data[metadata]")).ID
	default:
		return invalid("mode", "mode must be payment or setup")
	}
	x.URL = orNull(co.url + "/pay/" + x.ID)
	co.store.Sessions.put(x.ID, x)
	return ok(x)
}

// dashboardMethods are the kinds of payment methods that a page offers when the request names none: what is switched on
// in the dashboard.
var dashboardMethods = []string{"card", "link", "sepa_debit"}

// Pay is the payer paying, or saving a card, on a page with a payment method; done reports whether the card was good.
// The payer is there: a bank that asks is answered.
func (co *Checkout) Pay(sessionID, method string) (done bool) {
	co.store.mu.Lock()
	defer co.store.mu.Unlock()
	x := co.store.Sessions.get(sessionID)
	if x == nil || x.Status != "open" || !slices.Contains(x.MethodTypes, cards[method].kind()) {
		return false
	}
	if x.Mode == "setup" {
		done = co.setups.confirm(co.store.Setups.get(*x.Setup), method).Status == http.StatusOK
	} else {
		done = co.payHere(x, method)
	}
	if done {
		x.Status, x.URL = "complete", nil
		co.events.emit("checkout.session.completed", x)
	}
	co.store.save()
	return done
}

// payHere tries a card on the page; the first try makes the payment, later ones go on with it.
func (co *Checkout) payHere(x *session, method string) bool {
	if x.Payment == nil {
		customer := ""
		if x.Customer != nil {
			customer = *x.Customer
		}
		p := co.payments.add(*x.Amount, *x.Currency, customer, x.PaymentMeta)
		p.MethodTypes = x.MethodTypes
		p.FutureUsage, p.ReceiptEmail = orNull(x.PaymentUsage), orNull(x.PaymentReceipt)
		x.Payment = &p.ID
	}
	p := co.store.Payments.get(*x.Payment)
	a := co.payments.charge(p, method, x.SuccessURL, nil)
	if p.Status == "requires_action" {
		co.payments.collect(p)
	}
	if a.Status != http.StatusOK {
		return false
	}
	if p.Status == "succeeded" {
		x.PayStatus = "paid"
	}
	return true
}

// Expire ends a page on which nothing was paid.
func (co *Checkout) Expire(sessionID string) {
	co.store.mu.Lock()
	defer co.store.mu.Unlock()
	if x := co.store.Sessions.get(sessionID); x != nil && x.Status == "open" {
		x.Status, x.URL = "expired", nil
		co.events.emit("checkout.session.expired", x)
		co.store.save()
	}
}

func (co *Checkout) page(w http.ResponseWriter, r *http.Request) {
	co.store.mu.Lock()
	d := pageData{Title: "Sandbox checkout", What: "Save a card", Failed: r.URL.Query().Has("failed")}
	x := co.store.Sessions.get(r.PathValue("id"))
	if x != nil {
		d.Back = x.CancelURL
		if x.Mode == "payment" {
			d.What = "Pay " + cents(*x.Amount, *x.Currency)
		}
	}
	co.store.mu.Unlock()
	if x == nil {
		http.NotFound(w, r)
		return
	}
	show(w, "pay", d)
}

func (co *Checkout) clicked(w http.ResponseWriter, r *http.Request) {
	co.store.mu.Lock()
	x := co.store.Sessions.get(r.PathValue("id"))
	co.store.mu.Unlock()
	switch {
	case x == nil:
		http.NotFound(w, r)
	case co.Pay(x.ID, r.FormValue("method")):
		http.Redirect(w, r, x.SuccessURL, http.StatusSeeOther)
	default:
		http.Redirect(w, r, co.url+"/pay/"+x.ID+"?failed=1", http.StatusSeeOther)
	}
}
