package sandbox

// card is a test card: what its payment method says of it, and how it behaves.
type card struct {
	Brand, Last4 string
	Decline      *apiError // every charge is refused with it
	NotSaved     bool      // it is refused already when it is to be saved
	Challenges   bool      // the bank asks the payer (3-D Secure)
	Slow         bool      // charges stay in processing until Finish
	Kind         string    // of payment method; "" is card

	RefundsWait bool // refunds stay pending until FinishRefund
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
