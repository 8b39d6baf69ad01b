package sandbox

import (
	"encoding/json"
	"time"
)

type event struct {
	ID         string          `json:"id"`
	Object     string          `json:"object"`
	Type       string          `json:"type"`
	Account    string          `json:"account,omitempty"` // where it happened, when that is a connected account
	APIVersion string          `json:"api_version"`
	Created    int64           `json:"created"`
	Data       eventData       `json:"data"`
	Livemode   bool            `json:"livemode"`
	Pending    int             `json:"pending_webhooks"`
	Request    json.RawMessage `json:"request"`
}

type eventData struct {
	Object json.RawMessage `json:"object"`
}

// waiting is an event that is not delivered yet.
type waiting struct {
	Event event `json:"event"`
	// Taken is until when a server is delivering it, in Unix milliseconds: others leave it alone.
	Taken int64 `json:"taken,omitempty"`
	// Thin is the body of an event of Stripe's version 2 of events, which has no object: it is delivered instead of Event.
	Thin json.RawMessage `json:"thin,omitempty"`
}

// events queues what happens to objects, for Webhooks.
type events struct {
	store *store
	news  chan struct{} // an event waits; holds one
}

// emitThin queues an event that only names the object that it is about.
func (ev *events) emitThin(kind, object, of, url string) {
	id := newID("evt")
	b, err := json.Marshal(map[string]any{
		"id":             id,
		"object":         "v2.core.event",
		"type":           kind,
		"livemode":       false,
		"created":        ev.store.clock().UTC().Format(time.RFC3339Nano),
		"context":        nil,
		"reason":         nil,
		"related_object": map[string]string{"id": object, "type": of, "url": url},
	})
	if err != nil {
		panic(err) // our own types
	}
	ev.store.Events.put(id, &waiting{Event: event{ID: id, Type: kind}, Thin: b})
	ev.ring()
}

// emit queues an event with the object as it is now.
func (ev *events) emit(kind string, object any) { ev.emitAt("", kind, object) }

// emitAt is emit for what happens at a connected account; "": at the platform's own.
func (ev *events) emitAt(account, kind string, object any) {
	b, err := json.Marshal(object)
	if err != nil {
		panic(err) // our own types
	}
	e := event{
		ID: newID("evt"), Object: "event", Type: kind, Account: account, APIVersion: APIVersion, Created: ev.store.now(),
		Data: eventData{b}, Pending: 1, Request: json.RawMessage("null"),
	}
	ev.store.Events.put(e.ID, &waiting{Event: e})
	ev.ring()
}

// ring wakes Webhooks.Push because an event may wait.
func (ev *events) ring() {
	select {
	case ev.news <- struct{}{}:
	default:
	}
}
