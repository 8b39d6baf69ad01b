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

	"github.com/musterhq/muster/internal/db"
)

// Webhooks delivers the events that wait.
type Webhooks struct {
	store   *store
	events  *events
	billing *Billing
	secret  string // signs them
	db      *db.DB // nil: the state is in memory only
}

// Delivery is an event on its way to a webhook.
type Delivery struct {
	Payload   []byte
	Signature string // the Stripe-Signature header
	event     string
}

// Deliveries takes the events that wait, oldest first, signed now.
func (wh *Webhooks) Deliveries() []Delivery {
	wh.store.mu.Lock()
	defer wh.store.mu.Unlock()
	var out []Delivery
	for len(wh.store.Events.Order) > 0 {
		id := wh.store.Events.Order[0]
		out = append(out, wh.delivery(id))
		wh.store.Events.drop(id)
	}
	wh.store.save()
	return out
}

func (wh *Webhooks) delivery(event string) Delivery {
	w := wh.store.Events.Objects[event]
	b, err := json.Marshal(w.Event)
	if err != nil {
		panic(err) // our own types
	}
	if w.Thin != nil {
		b = w.Thin
	}
	return Delivery{b, Sign(b, wh.secret, wh.store.clock()), event}
}

// turn is how long one server may take to deliver what it took before another tries.
const turn = 30 * time.Second

// take takes waiting events that no other server is delivering, those of what the clock has brought among them.
func (wh *Webhooks) take() (out []Delivery) {
	wh.store.mu.Lock()
	defer wh.store.mu.Unlock()
	wh.billing.run()
	now := wh.store.clock()
	for _, id := range wh.store.Events.Order[:min(len(wh.store.Events.Order), 100)] {
		if wh.store.Events.Objects[id].Taken < now.UnixMilli() {
			wh.store.Events.get(id).Taken = now.Add(turn).UnixMilli()
			out = append(out, wh.delivery(id))
		}
	}
	wh.store.save()
	return out
}

// settled notes which events arrived, and that others need not be left alone.
func (wh *Webhooks) settled(arrived, again []Delivery) {
	wh.store.mu.Lock()
	defer wh.store.mu.Unlock()
	for _, d := range arrived {
		wh.store.Events.drop(d.event)
	}
	for _, d := range again {
		if e := wh.store.Events.get(d.event); e != nil {
			e.Taken = 0
		}
	}
	wh.store.save()
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
func (wh *Webhooks) Push(ctx context.Context, url string) {
	retry := time.NewTicker(2 * time.Second)
	defer retry.Stop()
	c := &http.Client{Timeout: 10 * time.Second}
	for {
		select {
		case <-ctx.Done():
			return
		case <-wh.events.news:
		case <-retry.C:
		}
		_ = try(func() { // what cannot be reached now is there at the next tick
			ds := wh.take()
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
			wh.settled(arrived, again)
		})
		if rand.IntN(1000) == 0 {
			wh.sweep(ctx)
		}
	}
}

// sweep forgets what is long gone.
func (wh *Webhooks) sweep(ctx context.Context) {
	if wh.db != nil {
		_ = wh.db.Q.SweepSandbox(ctx) // there is a next time
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
