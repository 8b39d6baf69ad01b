package stripepay

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/webhook"
)

// EventAge is how far a signature's time may be from ours, in either direction.
const EventAge = 5 * time.Minute

// Event is what we take from one of Stripe's events: a hint to ask about an object.
type Event struct {
	ID        string // evt_…
	Type      string // payment_intent.succeeded, …
	ObjectID  string
	CreatedAt time.Time
	// OtherVersion: the endpoint is set to another API version than this client's. Nothing we take depends on it.
	OtherVersion bool
}

// Refused says why a delivery is not taken in.
type Refused struct {
	Reason string // unsigned, old, future, bad_signature or malformed
	detail string
}

func (r *Refused) Error() string { return r.detail }

// Event verifies a delivery, body and Stripe-Signature header as they came, at the time now. The library's own check
// accepts signatures of the far future, and answers an event of another API version with an error beside a filled
// event; here age is bounded both ways, and the version does not matter, because objects are asked for again. An error is a Refused.
func (c *Client) Event(payload []byte, signature string, now time.Time) (Event, error) {
	signed, err := signedAt(signature)
	if err != nil {
		return Event{}, err
	}
	switch age := now.Sub(signed); {
	case age > EventAge:
		return Event{}, &Refused{"old", fmt.Sprintf("its signature is %s old", age.Round(time.Second))}
	case age < -EventAge:
		return Event{}, &Refused{"future", fmt.Sprintf("its signature is %s ahead of time", -age.Round(time.Second))}
	}
	var e stripe.Event
	for _, secret := range c.secrets {
		if e, err = webhook.ConstructEventWithOptions(payload, signature, secret, webhook.ConstructEventOptions{
			IgnoreTolerance: true, IgnoreAPIVersionMismatch: true,
		}); err == nil {
			break
		}
	}
	if err != nil {
		return Event{}, &Refused{reasonOf(err), "it cannot be verified: " + err.Error()}
	}
	if e.Data == nil {
		return Event{}, &Refused{"malformed", "it has no object"}
	}
	object, _ := e.Data.Object["id"].(string)
	if e.ID == "" || e.Type == "" || object == "" {
		return Event{}, &Refused{"malformed", "it has no id, type or object id"}
	}
	return Event{
		ID: e.ID, Type: string(e.Type), ObjectID: object, CreatedAt: time.Unix(e.Created, 0).UTC(),
		OtherVersion: e.APIVersion != stripe.APIVersion,
	}, nil
}

// reasonOf tells a wrong signature from a signed event that cannot be read.
func reasonOf(err error) string {
	if errors.Is(err, webhook.ErrNoValidSignature) || errors.Is(err, webhook.ErrInvalidHeader) || errors.Is(err, webhook.ErrNotSigned) {
		return "bad_signature"
	}
	return "malformed"
}

// signedAt is the time in a signature header; the last one counts, as it does for the signature.
func signedAt(header string) (time.Time, error) {
	at := int64(-1)
	for _, part := range strings.Split(header, ",") {
		if v, ok := strings.CutPrefix(part, "t="); ok {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return time.Time{}, &Refused{"unsigned", "its signature's time cannot be read"}
			}
			at = n
		}
	}
	if at < 0 {
		return time.Time{}, &Refused{"unsigned", "it is not signed"}
	}
	return time.Unix(at, 0), nil
}
