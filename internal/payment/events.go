package payment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/stripepay"
)

// ReceiveWebhook takes in one of Stripe's events: body and Stripe-Signature header as they came. It stores the event
// once and leaves the work to ProcessEvents. A bad signature, or one that is not of these minutes, is fault.Invalid;
// Stripe sends everything again that is not answered with 2xx.
func (p *Payments) ReceiveWebhook(ctx context.Context, payload []byte, signature string) error {
	return p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		e, err := p.stripe.Event(payload, signature, now)
		if err != nil {
			return fault.Wrap(err, fault.Invalid, "the event is not one of Stripe's, or not of these minutes")
		}
		if e.OtherVersion {
			p.log.WarnContext(ctx, "Stripe's webhook endpoint is set to another API version", "event", e.ID)
		}
		if _, err := tx.Q.InsertStripeEvent(ctx, dbq.InsertStripeEventParams{ID: e.ID, Type: e.Type, ObjectID: e.ObjectID, CreatedAt: e.CreatedAt}); err != nil {
			return fmt.Errorf("payment: store event: %w", err)
		}
		return nil
	})
}

// ProcessEvents asks Stripe about the objects of stored events and says how many it dealt with. Run it every few
// seconds and after ReceiveWebhook. An event whose object cannot be asked about now comes up again later.
func (p *Payments) ProcessEvents(ctx context.Context) (n int, err error) {
	rows, err := p.d.Q.ClaimStripeEvents(ctx, batchRows)
	if err != nil {
		return 0, fmt.Errorf("payment: claim events: %w", err)
	}
	var errs []error
	for _, e := range rows {
		note, err := p.refresh(ctx, e.ObjectID)
		if err != nil {
			errs = append(errs, fmt.Errorf("payment: event %s: %w", e.ID, err), p.d.Q.FailStripeEvent(ctx, e.ID, err.Error()))
			continue
		}
		if err := p.d.Q.FinishStripeEvent(ctx, e.ID, note); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

// pollAfter is when a top-up that is still pending is asked about without an event.
const pollAfter = time.Minute

// Poll asks Stripe about top-ups that have been pending for a while, in case every event was lost, and says how many
// it settled. Run it every minute.
func (p *Payments) Poll(ctx context.Context) (n int, err error) { return p.poll(ctx, pollAfter) }

func (p *Payments) poll(ctx context.Context, after time.Duration) (n int, err error) {
	pending, err := p.d.Q.PendingTopups(ctx, after.Seconds(), batchRows)
	if err != nil {
		return 0, fmt.Errorf("payment: pending top-ups: %w", err)
	}
	var errs []error
	for _, t := range pending {
		row, err := p.d.Q.OutboxByKey(ctx, topupKey(t))
		if err == nil && row.State == stateDone {
			_, err = p.refresh(ctx, row.ResultID)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("payment: poll %s: %w", t, err))
			continue
		}
		if now, err := p.d.Q.Topup(ctx, t); err == nil && now.State != string(Pending) {
			n++
		}
	}
	return n, errors.Join(errs...)
}

// refresh asks Stripe for the present state of an object and books it. The note says why nothing was to be done.
func (p *Payments) refresh(ctx context.Context, object string) (note string, err error) {
	switch {
	case strings.HasPrefix(object, "pi_"):
		return p.refreshPayment(ctx, object, false)
	case strings.HasPrefix(object, "cs_"):
		return p.refreshCheckout(ctx, object)
	}
	return "of no concern", nil
}

// refreshPayment books a payment. over says that the page it belongs to is closed.
func (p *Payments) refreshPayment(ctx context.Context, payment string, over bool) (note string, err error) {
	pay, err := p.stripe.Payment(ctx, payment)
	if err != nil {
		return ifMissing(err)
	}
	topup, err := id.Parse[id.TopUp](pay.TopUp)
	if err != nil {
		return notOurs, nil
	}
	kind, err := p.kindOf(ctx, topup)
	if err != nil || kind == "" {
		return notOurs, err
	}
	return "", p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return p.settle(ctx, tx, topup, pay, over || kind == kindPayment)
	})
}

const notOurs = "not a top-up of this platform"

// kindOf is how a top-up is paid; "" when there is no such top-up.
func (p *Payments) kindOf(ctx context.Context, topup id.TopUp) (string, error) {
	row, err := p.d.Q.OutboxByKey(ctx, topupKey(topup))
	if db.NoRows(err) {
		return "", nil
	}
	return row.Kind, err
}

func (p *Payments) refreshCheckout(ctx context.Context, session string) (note string, err error) {
	page, err := p.stripe.Checkout(ctx, session)
	if err != nil {
		return ifMissing(err)
	}
	if page.Payment != "" {
		return p.refreshPayment(ctx, page.Payment, !page.Open)
	}
	topup, err := id.Parse[id.TopUp](page.TopUp)
	if err != nil || page.Open {
		return "nothing paid yet", nil
	}
	if kind, err := p.kindOf(ctx, topup); err != nil || kind == "" {
		return notOurs, err
	}
	return "", p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return p.fail(ctx, tx, topup, Canceled, "The payment page was closed before anything was paid.", "")
	})
}

// ifMissing turns an object that Stripe does not know into a note; nothing can come of asking again.
func ifMissing(err error) (note string, _ error) {
	if e := stripepay.As(err); e != nil && e.Outcome == stripepay.Missing {
		return "Stripe does not know it", nil
	}
	return "", err
}
