// Package events receives Stripe's webhook events.
//
// Invariants:
//   - An event is a reason to read its object from Stripe, never a fact: nothing is booked from what an event contains.
//   - An event is stored once before it is acknowledged, and processed after that, by one replica at a time, until it
//     succeeds.
//   - A delivery with a bad signature, or with one that is not recent, changes nothing.
package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/text"
)

// Handler reads the present state of an object from Stripe and books it. It may be called any number of times for an
// object, also by several replicas at once. The note is the reason why there was nothing to do.
type Handler func(ctx context.Context, object string) (note string, err error)

// Inbox stores events and passes their objects to handlers. It is safe for concurrent use once all handlers are
// registered.
type Inbox struct {
	d        *db.DB
	client   *stripe.Client
	log      *slog.Logger
	handlers map[string]Handler // by prefix of the object's id

	refusedNotified sync.Map // reason for refusing a webhook → day on which admins were last notified
}

const (
	batchRows = 50 // events that a call of Process takes
	workers   = 8  // events that a replica processes at once
	// backOffWait is how long an event waits when Stripe limits our rate.
	backOffWait = 10 * time.Second
	// maxError is how much of an error is stored, in bytes.
	maxError = 2000
	// queue names events that cannot be processed among the dead letters.
	queue = "stripe_event"
)

// New returns an inbox without handlers.
func New(d *db.DB, client *stripe.Client, log *slog.Logger) *Inbox {
	return &Inbox{d: d, client: client, log: log, handlers: map[string]Handler{}}
}

// Handle registers the handler of the objects whose ids begin with prefix, such as "tr_". Register all handlers before
// the first event is processed.
func (in *Inbox) Handle(prefix string, h Handler) { in.handlers[prefix] = h }

// Receive stores an event: payload and signature are the body and the Stripe-Signature header of a webhook request.
// Process does the rest. If the signature is bad or not recent, the error is fault.Invalid, and admins are notified;
// Stripe sends again whatever is not answered with 2xx.
func (in *Inbox) Receive(ctx context.Context, payload []byte, signature string) error {
	notStripes := func(err error) error {
		return fault.Wrap(err, fault.Invalid, "the event is not signed by Stripe, or its signature is not recent")
	}
	// The signature is checked first: a request that anybody can send costs no database work.
	e, err := in.client.Event(payload, signature)
	if err != nil {
		err = notStripes(err)
	} else {
		err = in.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			now, err := tx.Now(ctx)
			if err != nil {
				return err
			}
			if err := e.Fresh(now); err != nil {
				return notStripes(err)
			}
			return in.store(ctx, tx, e)
		})
	}
	var refused *stripe.Refused
	if errors.As(err, &refused) {
		if failed := in.notifyRefused(ctx, refused); failed != nil {
			in.log.ErrorContext(ctx, "admins could not be notified of a refused webhook", "err", failed)
		}
	}
	return err
}

func (in *Inbox) store(ctx context.Context, tx *db.Tx, e stripe.Event) error {
	if e.OtherVersion {
		in.log.WarnContext(ctx, "Stripe's webhook endpoint is set to another API version", "event", e.ID)
	}
	_, err := tx.Q.InsertStripeEvent(ctx, dbq.InsertStripeEventParams{
		ID:        e.ID,
		Type:      e.Type,
		ObjectID:  e.ObjectID,
		CreatedAt: e.CreatedAt,
	})
	if err != nil {
		return fmt.Errorf("store event %s: %w", e.ID, err)
	}
	return nil
}

// Process passes the objects of stored events to their handlers and returns how many events it finished. Call it every
// few seconds and after Receive. An event whose handler fails is processed again later.
func (in *Inbox) Process(ctx context.Context) (n int, err error) {
	rows, err := in.d.Q.ClaimStripeEvents(ctx, batchRows)
	if err != nil {
		return 0, fmt.Errorf("claim events: %w", err)
	}
	results := make([]error, len(rows))
	var g errgroup.Group
	g.SetLimit(workers)
	for i, e := range rows {
		g.Go(func() error {
			results[i] = in.process(ctx, e)
			return nil
		})
	}
	_ = g.Wait() // results has the errors
	for _, err := range results {
		if err == nil {
			n++
		}
	}
	return n, errors.Join(results...)
}

// process handles one event. An event that fails for three days is retried daily and listed among the dead letters;
// until then the reconciliation and the pollers find what it announced.
func (in *Inbox) process(ctx context.Context, e dbq.ClaimStripeEventsRow) error {
	note, err := in.Refresh(ctx, e.ObjectID)
	if err == nil {
		if e.Attempts > 1 {
			err = notify.DropDeadLetter(ctx, in.d.Q, queue, e.ID)
		}
		return errors.Join(err, in.d.Q.FinishStripeEvent(ctx, e.ID, note))
	}
	if stripe.IsBackOff(err) {
		return errors.Join(err, in.d.Q.FailStripeEvent(ctx, text.Clip(err.Error(), maxError), backOffWait.Seconds(), e.ID))
	}
	wait, failed := notify.DeadLetter(ctx, in.d, queue, e.ID, err)
	if failed == nil {
		failed = in.d.Q.FailStripeEvent(ctx, text.Clip(err.Error(), maxError), wait.Seconds(), e.ID)
	}
	return errors.Join(fmt.Errorf("process event %s: %w", e.ID, err), failed)
}

// Refresh calls the handler of an object, such as dp_… or re_…, as an event about it does. The note is the reason why
// there was nothing to do.
func (in *Inbox) Refresh(ctx context.Context, object string) (note string, err error) {
	for prefix, handle := range in.handlers {
		if strings.HasPrefix(object, prefix) {
			return handle(ctx, object)
		}
	}
	return "no handler for objects of this kind", nil
}

// notifyRefused notifies admins of a refused webhook, once per reason and day (UTC), because anyone may send any number
// of them. The cause is a forgery, or a wrong secret or clock on our side; then no payment is confirmed by events.
func (in *Inbox) notifyRefused(ctx context.Context, r *stripe.Refused) error {
	today := time.Now().UTC().Format(time.DateOnly)
	if day, _ := in.refusedNotified.Load(r.Reason); day == today {
		return nil
	}
	in.log.WarnContext(ctx, "a Stripe webhook was refused", "reason", r.Reason, "err", r)
	err := in.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return notify.AddForAdmins(ctx, tx, notify.Notice{
			Key:      "webhook_refused:" + r.Reason + ":" + today,
			Severity: notify.Warn,
			Title:    "A delivery to Stripe's webhook was refused",
			Body: fmt.Sprintf("A delivery was refused: %s. It changed nothing, and no money moved. Either it was not sent by "+
				"Stripe, or the signing secret configured here is not the endpoint's, or a clock is wrong: check the "+
				"endpoint's deliveries at Stripe. Until this is fixed, payments are confirmed by polling Stripe, which is "+
				"slower. You will not be notified of further refusals for this reason today.", r),
		})
	})
	if err != nil {
		return err
	}
	in.refusedNotified.Store(r.Reason, today)
	return nil
}
