package sandbox

import (
	"net/http"
	"net/url"
)

type paymentMethod struct {
	ID       string            `json:"id"`
	Object   string            `json:"object"`
	Type     string            `json:"type"`
	Billing  billingDetails    `json:"billing_details"`
	Card     methodCard        `json:"card"`
	Customer *string           `json:"customer"`
	Created  int64             `json:"created"`
	Livemode bool              `json:"livemode"`
	Metadata map[string]string `json:"metadata"`
	Test     string            `json:"x_test,omitempty"` // which of cards it is
}

type methodCard struct {
	Brand    string  `json:"brand"`
	Last4    string  `json:"last4"`
	ExpMonth int     `json:"exp_month"`
	ExpYear  int     `json:"exp_year"`
	Funding  string  `json:"funding"`
	Country  *string `json:"country"`
	Print    string  `json:"fingerprint"` // of the number: the same for every customer who saves it
}

type billingDetails struct {
	Address *struct{} `json:"address"`
	Email   *string   `json:"email"`
	Name    *string   `json:"name"`
	Phone   *string   `json:"phone"`
}

// methods are the payment methods, which test cards become.
type methods struct {
	store  *store
	events *events
}

func (ms *methods) routes(f *front) {
	f.onGet("/v1/payment_methods/{id}", func(r *http.Request) answer {
		if m := ms.store.Methods.get(r.PathValue("id")); m != nil {
			return ok(m)
		}
		return missing("PaymentMethod", r.PathValue("id"))
	})
	f.onGet("/v1/customers/{id}/payment_methods", func(r *http.Request) answer {
		if ms.store.Customers.get(r.PathValue("id")) == nil {
			return missing("customer", r.PathValue("id"))
		}
		return pageOf(&ms.store.Methods, r, func(_ url.Values, m *paymentMethod) bool {
			return m.Customer != nil && *m.Customer == r.PathValue("id")
		})
	})
	f.onPost("/v1/payment_methods/{id}/detach", func(r *http.Request, _ url.Values) answer {
		m := ms.store.Methods.get(r.PathValue("id"))
		switch {
		case m == nil:
			return missing("PaymentMethod", r.PathValue("id"))
		case m.Customer == nil:
			return invalid("", "The payment method you provided is not attached to a customer so detachment is impossible.")
		}
		m.Customer = nil
		ms.events.emit("payment_method.detached", m)
		return ok(m)
	})
}

// named finds a payment method by its id, or makes one of a test card's name; nil: there is none.
func (ms *methods) named(name string) *paymentMethod {
	if m := ms.store.Methods.get(name); m != nil {
		return m
	}
	c, known := cards[name]
	if !known {
		return nil
	}
	country := "US"
	m := &paymentMethod{
		ID:       newID("pm"),
		Object:   "payment_method",
		Type:     "card",
		Created:  ms.store.now(),
		Metadata: map[string]string{},
		Test:     name,
		Card: methodCard{
			Brand:    c.Brand,
			Last4:    c.Last4,
			ExpMonth: 12,
			ExpYear:  ms.store.clock().Year() + 3,
			Funding:  "credit",
			Country:  &country,
			Print:    "fp_" + name,
		},
	}
	return ms.store.Methods.put(m.ID, m)
}

// attach saves a method for a customer.
func (ms *methods) attach(m *paymentMethod, customer string) {
	if customer == "" || m.Customer != nil {
		return
	}
	m.Customer = &customer
	ms.events.emit("payment_method.attached", m)
}

// card is a test card: the attributes of its payment method, and how it behaves.
type card struct {
	Brand, Last4 string
	Decline      *apiError // every charge is refused with it
	NotSaved     bool      // it is refused already when it is to be saved
	Challenges   bool      // the bank asks the payer (3-D Secure)
	Slow         bool      // charges stay in processing until Payments.Finish
	Kind         string    // of payment method; "" is card

	RefundsWait bool // refunds stay pending until Refunds.Finish
}

// kind is Stripe's name for the kind of payment method.
func (c card) kind() string {
	if c.Kind == "" {
		return "card"
	}
	return c.Kind
}

func declined(code, decline, message string) *apiError {
	return &apiError{Status: 402, Type: "card_error", Code: code, DeclineCode: decline, Message: message}
}

var (
	genericDecline = declined("card_declined", "generic_decline", "Your card was declined.")
	noFunds        = declined("card_declined", "insufficient_funds", "Your card has insufficient funds.")
	expiredCard    = declined("expired_card", "", "Your card has expired.")
	wantsPayer     = declined("authentication_required", "authentication_required",
		"Your card was declined. This transaction requires authentication.")
	notHim = &apiError{Status: 402, Type: "card_error", Code: "payment_intent_authentication_failure",
		Message: "We are unable to authenticate your payment method. Please choose a different payment method and try again."}
)

// cards are the test payment methods, by Stripe's names; pm_slow, and pm_sepa, a debit that takes days, are ours.
var cards = map[string]card{
	"pm_card_visa":       {Brand: "visa", Last4: "4242"},
	"pm_card_mastercard": {Brand: "mastercard", Last4: "4444"},
	"pm_card_visa_chargeDeclined": {
		Brand:    "visa",
		Last4:    "0002",
		Decline:  genericDecline,
		NotSaved: true,
	},
	"pm_card_visa_chargeDeclinedInsufficientFunds": {Brand: "visa", Last4: "9995", Decline: noFunds, NotSaved: true},
	"pm_card_chargeDeclinedExpiredCard":            {Brand: "visa", Last4: "0069", Decline: expiredCard, NotSaved: true},
	"pm_card_chargeCustomerFail":                   {Brand: "visa", Last4: "0341", Decline: genericDecline},
	"pm_card_authenticationRequired":               {Brand: "visa", Last4: "3184", Challenges: true},
	"pm_card_pendingRefund":                        {Brand: "visa", Last4: "7726", RefundsWait: true},
	"pm_slow":                                      {Brand: "visa", Last4: "1111", Slow: true},
	"pm_sepa":                                      {Brand: "visa", Last4: "3000", Slow: true, Kind: "sepa_debit"},
}

var declinedAmounts = map[int64]*apiError{400002: genericDecline, 400095: noFunds, 400069: expiredCard}
