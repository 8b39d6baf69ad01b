package sandbox

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
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

// emitThin queues an event that only names the object that it is about.
func (s *Server) emitThin(kind, object, of, url string) {
	id := newID("evt")
	b, err := json.Marshal(map[string]any{
		"id":             id,
		"object":         "v2.core.event",
		"type":           kind,
		"livemode":       false,
		"created":        s.cfg.Now().UTC().Format(time.RFC3339Nano),
		"context":        nil,
		"reason":         nil,
		"related_object": map[string]string{"id": object, "type": of, "url": url},
	})
	if err != nil {
		panic(err) // our own types
	}
	s.s.Events.put(id, &waiting{Event: event{ID: id, Type: kind}, Thin: b})
	s.ring()
}

// emit queues an event with the object as it is now.
func (s *Server) emit(kind string, object any) { s.emitAt("", kind, object) }

// emitAt is emit for what happens at a connected account; "": at the platform's own.
func (s *Server) emitAt(account, kind string, object any) {
	b, err := json.Marshal(object)
	if err != nil {
		panic(err) // our own types
	}
	e := event{
		ID: newID("evt"), Object: "event", Type: kind, Account: account, APIVersion: APIVersion, Created: s.now(),
		Data: eventData{b}, Pending: 1, Request: json.RawMessage("null"),
	}
	s.s.Events.put(e.ID, &waiting{Event: e})
	s.ring()
}

// ring wakes Push because an event may wait.
func (s *Server) ring() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// Delivery is an event on its way to a webhook.
type Delivery struct {
	Payload   []byte
	Signature string // the Stripe-Signature header
	event     string
}

// Deliveries takes the events that wait, oldest first, signed now.
func (s *Server) Deliveries() []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Delivery
	for len(s.s.Events.Order) > 0 {
		id := s.s.Events.Order[0]
		out = append(out, s.delivery(id))
		s.s.Events.drop(id)
	}
	s.save()
	return out
}

func (s *Server) delivery(event string) Delivery {
	w := s.s.Events.Objects[event]
	b, err := json.Marshal(w.Event)
	if err != nil {
		panic(err) // our own types
	}
	if w.Thin != nil {
		b = w.Thin
	}
	return Delivery{b, Sign(b, s.cfg.WebhookSecret, s.cfg.Now()), event}
}

// turn is how long one server may take to deliver what it took before another tries.
const turn = 30 * time.Second

// take takes waiting events that no other server is delivering, those of what the clock has brought among them.
func (s *Server) take() (out []Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bill()
	now := s.cfg.Now()
	for _, id := range s.s.Events.Order[:min(len(s.s.Events.Order), 100)] {
		if s.s.Events.Objects[id].Taken < now.UnixMilli() {
			s.s.Events.get(id).Taken = now.Add(turn).UnixMilli()
			out = append(out, s.delivery(id))
		}
	}
	s.save()
	return out
}

// settled notes which events arrived, and that others need not be left alone.
func (s *Server) settled(arrived, again []Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range arrived {
		s.s.Events.drop(d.event)
	}
	for _, d := range again {
		if e := s.s.Events.get(d.event); e != nil {
			e.Taken = 0
		}
	}
	s.save()
}

// Sign is the Stripe-Signature header of a payload signed at a time.
func Sign(payload []byte, secret string, at time.Time) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.", at.Unix())
	mac.Write(payload)
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}

// Push delivers events to a webhook until ctx ends: in a random order, now and then twice, and again until they are
// answered with 2xx, as Stripe does. Servers that share their state share the work; what one took when it died, another
// delivers.
func (s *Server) Push(ctx context.Context, url string) {
	retry := time.NewTicker(2 * time.Second)
	defer retry.Stop()
	c := &http.Client{Timeout: 10 * time.Second}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.news:
		case <-retry.C:
		}
		_ = try(func() { // what cannot be reached now is there at the next tick
			ds := s.take()
			if len(ds) == 0 {
				return
			}
			rand.Shuffle(len(ds), func(i, j int) { ds[i], ds[j] = ds[j], ds[i] })
			var arrived, again []Delivery
			for _, d := range ds {
				if !d.send(ctx, c, url) {
					again = append(again, d)
					continue
				}
				arrived = append(arrived, d)
				if rand.IntN(4) == 0 {
					d.send(ctx, c, url) // at least once is sometimes twice
				}
			}
			s.settled(arrived, again)
		})
		if rand.IntN(1000) == 0 {
			s.sweep(ctx)
		}
	}
}

// sweep forgets what is long gone.
func (s *Server) sweep(ctx context.Context) {
	if s.cfg.DB != nil {
		_ = s.cfg.DB.Q.SweepSandbox(ctx) // there is a next time
	}
}

func (d Delivery) send(ctx context.Context, c *http.Client, url string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(d.Payload))
	if err != nil {
		return false
	}
	r.Header.Set("Stripe-Signature", d.Signature)
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(r)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // nothing in it is of interest
	return resp.StatusCode/100 == 2
}
