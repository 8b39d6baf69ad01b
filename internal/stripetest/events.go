package stripetest

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

// emit queues an event with the object as it is now.
func (s *Server) emit(kind string, object any) {
	b, err := json.Marshal(object)
	if err != nil {
		panic(err) // our own types
	}
	s.s.Events = append(s.s.Events, &event{
		ID: newID("evt"), Object: "event", Type: kind, APIVersion: APIVersion, Created: s.now(),
		Data: eventData{b}, Pending: 1, Request: json.RawMessage("null"),
	})
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// Delivery is an event on its way to a webhook.
type Delivery struct {
	Payload   []byte
	Signature string // the Stripe-Signature header
}

// Deliveries takes the events that wait, oldest first, signed now.
func (s *Server) Deliveries() []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Delivery
	for _, e := range s.s.Events {
		b, err := json.Marshal(e)
		if err != nil {
			panic(err) // our own types
		}
		out = append(out, Delivery{b, Sign(b, s.cfg.WebhookSecret, s.cfg.Now())})
	}
	s.s.Events = nil
	s.save()
	return out
}

// Sign is the Stripe-Signature header of a payload signed at a time.
func Sign(payload []byte, secret string, at time.Time) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.", at.Unix())
	mac.Write(payload)
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}

// Push delivers events to a webhook until ctx ends: in a random order, now and then twice, and again until they are
// answered with 2xx, as Stripe does.
func (s *Server) Push(ctx context.Context, url string) {
	retry := time.NewTicker(2 * time.Second)
	defer retry.Stop()
	c := &http.Client{Timeout: 10 * time.Second}
	var waiting []Delivery
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.news:
		case <-retry.C:
		}
		waiting = append(waiting, s.Deliveries()...)
		rand.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
		var again []Delivery
		for _, d := range waiting {
			d.Signature = Sign(d.Payload, s.cfg.WebhookSecret, s.cfg.Now())
			if !d.send(ctx, c, url) {
				again = append(again, d)
			} else if rand.IntN(4) == 0 {
				d.send(ctx, c, url) // at least once is sometimes twice
			}
		}
		waiting = again
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
