package stripe

import (
	"encoding/json"
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
	SignedAt  time.Time // the time in Stripe's signature
	// OtherVersion: the endpoint is set to another API version than this client's. Nothing we take depends on it.
	OtherVersion bool
}

// Refused is the reason why a delivery is refused.
type Refused struct {
	Reason string // unsigned, old, future, bad_signature or malformed
	detail string
}

func (r *Refused) Error() string { return r.detail }

// Event verifies the signature of a delivery, body and Stripe-Signature header as they came, and reads it. Whether it
// is of these minutes is for Event.Fresh to say. The library's own check accepts signatures of the far future, and
// answers an event of another API version with an error beside a filled event; here the version does not matter,
// because objects are asked for again. An error is a Refused.
func (c *Client) Event(payload []byte, signature string) (Event, error) {
	signed, err := signedAt(signature)
	if err != nil {
		return Event{}, err
	}
	for _, secret := range c.secrets {
		if err = webhook.ValidatePayloadIgnoringTolerance(payload, signature, secret); err == nil {
			break
		}
	}
	if err != nil {
		return Event{}, &Refused{"bad_signature", "it cannot be verified: " + err.Error()}
	}
	e, err := readEvent(payload)
	e.SignedAt = signed
	return e, err
}

// Fresh refuses an event whose signature is more than EventAge from now, in either direction. An error is a Refused.
func (e Event) Fresh(now time.Time) error {
	switch age := now.Sub(e.SignedAt); {
	case age > EventAge:
		return &Refused{"old", fmt.Sprintf("its signature is %s old", age.Round(time.Second))}
	case age < -EventAge:
		return &Refused{"future", fmt.Sprintf("its signature is %s ahead of time", -age.Round(time.Second))}
	}
	return nil
}

// readEvent reads an event: one of Stripe's with a snapshot of its object, or a thin one ("v2.core.event"), which only
// names its object.
func readEvent(payload []byte) (Event, error) {
	var e struct {
		ID         string          `json:"id"`
		Object     string          `json:"object"`
		Type       string          `json:"type"`
		APIVersion string          `json:"api_version"`
		Account    string          `json:"account"` // of an event at a connected account
		Created    json.RawMessage `json:"created"` // seconds; of a thin event RFC 3339
		Data       struct {
			Object map[string]any `json:"object"`
		} `json:"data"`
		Related struct {
			ID string `json:"id"`
		} `json:"related_object"`
	}
	if err := json.Unmarshal(payload, &e); err != nil {
		return Event{}, &Refused{"malformed", "it cannot be read: " + err.Error()}
	}
	out := Event{ID: e.ID, Type: e.Type}
	if e.Object == thinEvent {
		out.ObjectID = e.Related.ID
		if err := json.Unmarshal(e.Created, &out.CreatedAt); err != nil {
			return Event{}, &Refused{"malformed", "its time cannot be read: " + err.Error()}
		}
	} else {
		var created int64
		if err := json.Unmarshal(e.Created, &created); err != nil && len(e.Created) > 0 {
			return Event{}, &Refused{"malformed", "its time cannot be read: " + err.Error()}
		}
		out.ObjectID, _ = e.Data.Object["id"].(string)
		if e.Account != "" && (strings.HasPrefix(e.Type, "capability.") ||
			strings.HasPrefix(e.Type, "account.application.")) {
			out.ObjectID = e.Account // the object is a capability or an application; what to ask about is the account
		}
		out.CreatedAt, out.OtherVersion = time.Unix(created, 0), e.APIVersion != stripe.APIVersion
	}
	out.CreatedAt = out.CreatedAt.UTC()
	if out.ID == "" || out.Type == "" || out.ObjectID == "" {
		return Event{}, &Refused{"malformed", "it has no id, type or object id"}
	}
	return out, nil
}

// thinEvent is the object name of events that Stripe's version 2 of events sends.
const thinEvent = "v2.core.event"

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
