package stripe

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/stripe/stripe-go/v76"

	"github.com/musterhq/muster/internal/text"
)

// Outcome is what a failed call leaves behind.
type Outcome string

const (
	// Declined: the card was refused. Final; nothing was charged. Payment names the attempt.
	Declined Outcome = "declined"
	// Rejected: Stripe will never accept this request. Nothing happened.
	Rejected Outcome = "rejected"
	// Missing: the object does not exist.
	Missing Outcome = "missing"
	// Later: Stripe did not take the request (too many, another call with this key is running, our key is refused).
	// Nothing happened; the same key may be used again.
	Later Outcome = "later"
	// Unknown: no answer, or an ambiguous one. The request may have had an effect: only the same key is safe.
	Unknown Outcome = "unknown"
)

// CodeKeyReused: the idempotency key was used with other parameters before. What the first request did is unknown, and
// the key never works again: look the object up.
const CodeKeyReused = "idempotency_error"

// CodeAccountInvalid: a connected account does not exist, or is not connected to the platform any more.
const CodeAccountInvalid = "account_invalid"

// Error is a call that failed.
type Error struct {
	Outcome Outcome
	Code    string // Stripe's, such as "card_declined"
	Message string // Stripe's; for a declined card made for the payer
	Payment string // pi_… of a declined payment, if it was made
	cause   error
}

func (e *Error) Error() string { return fmt.Sprintf("stripe: %s %s: %s", e.Outcome, e.Code, e.Message) }

func (e *Error) Unwrap() error { return e.cause }

// As is the Error in err's chain; nil when there is none.
func As(err error) *Error {
	var e *Error
	errors.As(err, &e)
	return e
}

// The longest code and message of an Error, in bytes: they are stored.
const (
	maxCode    = 100
	maxMessage = 1000
)

// failure converts an error of the library. The library's text is not passed on, because it holds the whole answer.
func failure(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, errBackOff) {
		return &Error{Outcome: Later, Code: CodeBackOff, Message: errBackOff.Error(), cause: err}
	}
	var se *stripe.Error
	if !errors.As(err, &se) {
		return &Error{Outcome: Unknown, Code: "no_answer", Message: text.Clip(err.Error(), maxMessage), cause: err}
	}
	e := &Error{Outcome: Rejected, Code: text.Clip(string(se.Code), maxCode), Message: text.Clip(se.Msg, maxMessage),
		cause: err}
	if se.PaymentIntent != nil {
		e.Payment = se.PaymentIntent.ID
	}
	switch status := se.HTTPStatusCode; {
	case se.Type == stripe.ErrorTypeCard:
		e.Outcome = Declined
		if se.DeclineCode != "" {
			e.Code = text.Clip(string(se.DeclineCode), maxCode)
		}
	case status >= 500 || status == 0 || status == http.StatusOK:
		e.Outcome = Unknown
	case se.Type == stripe.ErrorTypeIdempotency && status == http.StatusBadRequest:
		e.Outcome, e.Code = Unknown, CodeKeyReused
	case status == http.StatusForbidden && se.Code == stripe.ErrorCodeAccountInvalid:
		// The account does not exist or does not let the platform act for it any more. Asking again changes nothing.
	case status == http.StatusTooManyRequests && se.Code == "":
		e.Outcome, e.Code = Later, CodeBackOff
	case status == http.StatusTooManyRequests, status == http.StatusConflict,
		status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.Outcome = Later
	case status == http.StatusNotFound:
		e.Outcome = Missing
	}
	return e
}
