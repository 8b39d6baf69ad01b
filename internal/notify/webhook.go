package notify

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/seal"
)

// MaxWebhooks is how many webhooks an organisation may have.
const MaxWebhooks = 5

// Actor is who acts on the webhooks of an organisation: account.Principal.
type Actor interface {
	Event(action, object string, detail map[string]any) audit.Event
}

// Webhook is an address that receives an organisation's notices by HTTP.
type Webhook struct {
	ID        id.Webhook
	URL       string
	Secret    string // signs what is sent; only set by Create
	CreatedAt time.Time
	// DisabledAt is when the platform stopped sending, because the address had failed for GiveUpAfter; nil: it sends.
	DisabledAt  *time.Time
	DisabledWhy string
}

// Delivery is one notice on its way to one webhook.
type Delivery struct {
	Notice      id.Notice
	Title       string
	State       DeliveryState
	Attempts    int
	Status      int    // of the last answer; 0: there was none
	Error       string // of the last attempt
	CreatedAt   time.Time
	NextAt      *time.Time // of the next attempt; nil: there is none
	DeliveredAt *time.Time
}

// DeliveryState is what became of a delivery.
type DeliveryState string

// The states of a delivery.
const (
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered"
	DeliveryFailed    DeliveryState = "failed" // given up: it can be retried by hand
)

// Webhooks are the use cases of an organisation's webhooks. Safe for concurrent use.
type Webhooks struct {
	db         *db.DB
	box        *seal.Box
	anyAddress bool
}

// NewWebhooks returns the use cases. anyAddress also accepts http and addresses that are not on the internet: for a
// development platform on one machine.
func NewWebhooks(d *db.DB, box *seal.Box, anyAddress bool) *Webhooks {
	return &Webhooks{d, box, anyAddress}
}

// Create adds a webhook for an organisation and returns it with its secret, which is not shown again.
// Faults: Invalid (the address), QuotaExceeded.
func (w *Webhooks) Create(ctx context.Context, by Actor, url string, once idem.Request) (Webhook, idem.Outcome, error) {
	once.Seal = w.box // the answer contains the secret
	return idem.Once(ctx, w.db, once, func(ctx context.Context, tx *db.Tx) (Webhook, error) {
		e := by.Event("webhook.create", "", map[string]any{"url": url})
		if err := checkURL(url, w.anyAddress); err != nil {
			return Webhook{}, err
		}
		have, err := tx.Q.LockWebhooks(ctx, e.Org)
		if err != nil {
			return Webhook{}, fmt.Errorf("count webhooks: %w", err)
		}
		if have >= MaxWebhooks {
			return Webhook{}, fault.New(fault.QuotaExceeded, "your organisation has %d webhooks, the most there may be: delete "+
				"one first", MaxWebhooks)
		}
		made := Webhook{ID: id.New[id.Webhook](), URL: url, Secret: newWebhookSecret()}
		made.CreatedAt, err = tx.Q.InsertWebhook(ctx, dbq.InsertWebhookParams{
			ID: made.ID, OrgID: e.Org, URL: url, Secret: w.box.Seal([]byte(made.Secret), webhookBelongs(made.ID)),
			CreatedBy: e.User,
		})
		if err != nil {
			return Webhook{}, fmt.Errorf("insert webhook: %w", err)
		}
		e.Object = made.ID.String()
		return made, audit.Record(ctx, tx, e)
	})
}

func newWebhookSecret() string {
	raw := make([]byte, 24)
	rand.Read(raw)
	return "whsec_" + base64.RawURLEncoding.EncodeToString(raw)
}

// webhookBelongs names the object that a sealed secret belongs to.
func webhookBelongs(w id.Webhook) string { return "webhook:" + w.String() }

// List returns an organisation's webhooks, newest first, without secrets.
func (w *Webhooks) List(ctx context.Context, org id.Org) ([]Webhook, error) {
	rows, err := w.db.Q.ListWebhooks(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	out := make([]Webhook, len(rows))
	for i, r := range rows {
		out[i] = Webhook{ID: r.ID, URL: r.URL, CreatedAt: r.CreatedAt, DisabledAt: r.DisabledAt, DisabledWhy: r.DisabledWhy}
	}
	return out, nil
}

// Get returns one of an organisation's webhooks, without its secret. Fault: NotFound.
func (w *Webhooks) Get(ctx context.Context, org id.Org, hook id.Webhook) (Webhook, error) {
	r, err := w.db.Q.GetWebhook(ctx, hook, org)
	switch {
	case db.NoRows(err):
		return Webhook{}, errNoWebhook
	case err != nil:
		return Webhook{}, fmt.Errorf("get webhook: %w", err)
	}
	return Webhook{ID: r.ID, URL: r.URL, CreatedAt: r.CreatedAt, DisabledAt: r.DisabledAt, DisabledWhy: r.DisabledWhy}, nil
}

var errNoWebhook = fault.New(fault.NotFound, "webhook not found")

// Delete deletes a webhook and what it has not received. Fault: NotFound.
func (w *Webhooks) Delete(ctx context.Context, by Actor, hook id.Webhook) error {
	e := by.Event("webhook.delete", hook.String(), nil)
	return w.change(ctx, e, func(ctx context.Context, q *dbq.Queries) (int64, error) {
		return q.DeleteWebhook(ctx, hook, e.Org)
	})
}

// Enable makes a disabled webhook receive notices again. What it has missed can be retried. Fault: NotFound.
func (w *Webhooks) Enable(ctx context.Context, by Actor, hook id.Webhook, once idem.Request) (Webhook, idem.Outcome,
	error) {
	return idem.Once(ctx, w.db, once, func(ctx context.Context, tx *db.Tx) (Webhook, error) {
		e := by.Event("webhook.enable", hook.String(), nil)
		if err := changed(tx.Q.EnableWebhook(ctx, hook, e.Org)); err != nil {
			return Webhook{}, err
		}
		if err := audit.Record(ctx, tx, e); err != nil {
			return Webhook{}, err
		}
		r, err := tx.Q.GetWebhook(ctx, hook, e.Org)
		return Webhook{ID: r.ID, URL: r.URL, CreatedAt: r.CreatedAt}, err
	})
}

// change runs a statement on one webhook and records the act.
func (w *Webhooks) change(ctx context.Context, e audit.Event, run func(context.Context, *dbq.Queries) (int64,
	error)) error {
	return w.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := changed(run(ctx, tx.Q)); err != nil {
			return err
		}
		return audit.Record(ctx, tx, e)
	})
}

func changed(rows int64, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("change webhook: %w", err)
	case rows == 0:
		return errNoWebhook
	}
	return nil
}

// Deliveries returns what was sent to a webhook, or will be, newest first. Fault: NotFound.
func (w *Webhooks) Deliveries(ctx context.Context, org id.Org, hook id.Webhook, after id.Notice, limit int) ([]Delivery,
	error) {
	if _, err := w.Get(ctx, org, hook); err != nil {
		return nil, err
	}
	from, err := after.UUIDValue()
	if err != nil {
		return nil, err
	}
	rows, err := w.db.Q.ListDeliveries(ctx, hook, from, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("list deliveries: %w", err)
	}
	out := make([]Delivery, len(rows))
	for i, r := range rows {
		out[i] = Delivery{Notice: r.NoticeID, Title: r.Title, State: DeliveryPending, Attempts: int(r.Attempts),
			Status: int(r.Status), Error: r.Error, CreatedAt: r.CreatedAt, DeliveredAt: r.DeliveredAt}
		switch {
		case r.DeliveredAt != nil:
			out[i].State = DeliveryDelivered
		case r.FailedAt != nil:
			out[i].State = DeliveryFailed
		default:
			out[i].NextAt = &r.NextAt
		}
	}
	return out, nil
}

// Retried is a delivery that is due again.
type Retried struct {
	Webhook id.Webhook
	Notice  id.Notice
}

// Retry sends a notice to a webhook again, whatever became of it before. Fault: NotFound.
func (w *Webhooks) Retry(ctx context.Context, by Actor, hook id.Webhook, notice id.Notice, once idem.Request) (Retried,
	idem.Outcome, error) {
	return idem.Once(ctx, w.db, once, func(ctx context.Context, tx *db.Tx) (Retried, error) {
		e := by.Event("webhook.retry", hook.String(), map[string]any{"notice": notice.String()})
		r, err := tx.Q.GetWebhook(ctx, hook, e.Org)
		switch {
		case db.NoRows(err):
			return Retried{}, errNoWebhook
		case err != nil:
			return Retried{}, fmt.Errorf("get webhook: %w", err)
		case r.DisabledAt != nil:
			return Retried{}, fault.New(fault.Conflict, "the webhook is disabled: enable it first")
		}
		rows, err := tx.Q.RetryDelivery(ctx, hook, notice)
		switch {
		case err != nil:
			return Retried{}, fmt.Errorf("retry delivery: %w", err)
		case rows == 0:
			return Retried{}, fault.New(fault.NotFound, "delivery not found")
		}
		return Retried{hook, notice}, audit.Record(ctx, tx, e)
	})
}

// RotatesSecret reports whether secrets have to be sealed again, because the platform's secret was replaced.
func (w *Webhooks) RotatesSecret() bool { return w.box != nil && w.box.Rotating() }

// Reseal seals again what the platform's previous secret sealed, and returns how many secrets that were.
func (w *Webhooks) Reseal(ctx context.Context) (n int, err error) {
	return seal.ResealAll(ctx, w.box, id.First[id.Webhook](), w.db.Q.ResealableWebhooks,
		func(r dbq.ResealableWebhooksRow) (id.Webhook, []byte, string) {
			return r.ID, r.Secret, webhookBelongs(r.ID)
		},
		w.db.Q.ResealWebhook)
}
