package payment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
)

// ReceiveWebhook takes in one of Stripe's events: body and Stripe-Signature header as they came. It stores the event
// once and leaves the work to ProcessEvents. A bad signature, or one that is not of these minutes, is fault.Invalid,
// and administrators are told; Stripe sends everything again that is not answered with 2xx.
func (p *Payments) ReceiveWebhook(ctx context.Context, payload []byte, signature string) error {
	notOurs := func(err error) error {
		return fault.Wrap(err, fault.Invalid, "the event is not one of Stripe's, or not of these minutes")
	}
	// The signature comes first: a delivery that anybody may send costs no database work.
	e, err := p.stripe.Event(payload, signature)
	if err != nil {
		err = notOurs(err)
	} else {
		err = p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			now, err := tx.Now(ctx)
			if err != nil {
				return err
			}
			if err := e.Fresh(now); err != nil {
				return notOurs(err)
			}
			return p.storeEvent(ctx, tx, e)
		})
	}
	var refused *stripe.Refused
	if errors.As(err, &refused) {
		if told := p.notifyRefused(ctx, refused); told != nil {
			p.log.ErrorContext(ctx, "administrators could not be told of a refused webhook", "error", told)
		}
	}
	return err
}

func (p *Payments) storeEvent(ctx context.Context, tx *db.Tx, e stripe.Event) error {
	if e.OtherVersion {
		p.log.WarnContext(ctx, "Stripe's webhook endpoint is set to another API version", "event", e.ID)
	}
	_, err := tx.Q.InsertStripeEvent(ctx, dbq.InsertStripeEventParams{
		ID:        e.ID,
		Type:      e.Type,
		ObjectID:  e.ObjectID,
		CreatedAt: e.CreatedAt,
	})
	if err != nil {
		return fmt.Errorf("store event: %w", err)
	}
	return nil
}

// ProcessEvents asks Stripe about the objects of stored events and says how many it dealt with. Run it every few
// seconds and after ReceiveWebhook. An event whose object cannot be asked about now comes up again later.
func (p *Payments) ProcessEvents(ctx context.Context) (n int, err error) {
	rows, err := p.d.Q.ClaimStripeEvents(ctx, batchRows)
	if err != nil {
		return 0, fmt.Errorf("claim events: %w", err)
	}
	results := make([]error, len(rows))
	var g errgroup.Group
	g.SetLimit(workersPerKind)
	for i, e := range rows {
		g.Go(func() error {
			results[i] = p.processEvent(ctx, e)
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

// queueEvents names events that cannot be processed among the dead letters.
const queueEvents = "stripe_event"

// processEvent asks about one event's object. An event that fails for three days is retried daily and listed among the
// dead letters; the reconciliation and the pollers find what it would have told meanwhile.
func (p *Payments) processEvent(ctx context.Context, e dbq.ClaimStripeEventsRow) error {
	note, err := p.refresh(ctx, e.ObjectID)
	if err == nil {
		if e.Attempts > 1 {
			err = notify.DropDeadLetter(ctx, p.d.Q, queueEvents, e.ID)
		}
		return errors.Join(err, p.d.Q.FinishStripeEvent(ctx, e.ID, note))
	}
	if stripe.IsBackOff(err) {
		return errors.Join(err, p.d.Q.FailStripeEvent(ctx, err.Error(), backOffWait.Seconds(), e.ID))
	}
	wait, failed := notify.DeadLetter(ctx, p.d, queueEvents, e.ID, err)
	if failed == nil {
		failed = p.d.Q.FailStripeEvent(ctx, err.Error(), wait.Seconds(), e.ID)
	}
	return errors.Join(fmt.Errorf("event %s: %w", e.ID, err), failed)
}

// refreshFor is how long a payer has to answer their bank.
const refreshFor = 24 * time.Hour

// Refresh asks Stripe about one of the org's top-ups now, for a payer who comes back from paying, and is Get.
func (p *Payments) Refresh(ctx context.Context, org id.Org, topup id.TopUp) (TopUp, error) {
	t, err := p.Get(ctx, org, topup)
	if err != nil || t.State != Pending {
		return t, err
	}
	sent, ok, err := p.out.Find(ctx, topupKey(topup))
	if err != nil || !ok || !sent.Done {
		return t, err
	}
	if _, err := p.refresh(ctx, sent.Object); err != nil {
		p.log.WarnContext(ctx, "a payment cannot be asked about now", "topup", topup, "err", err)
	}
	return p.Get(ctx, org, topup)
}

// RefreshOrg asks Stripe now about what an org waits for, for a payer who comes back from one of Stripe's pages.
func (p *Payments) RefreshOrg(ctx context.Context, org id.Org) error {
	const atMost = 5
	topups, err := p.d.Q.PendingTopupsOfOrg(ctx, org, atMost)
	if err != nil {
		return fmt.Errorf("what %s waits for: %w", org, err)
	}
	setups, err := p.d.Q.PendingCardSetupsOfOrg(ctx, org, atMost)
	if err != nil {
		return fmt.Errorf("what %s waits for: %w", org, err)
	}
	var errs []error
	for _, t := range topups {
		_, err := p.Refresh(ctx, org, t)
		errs = append(errs, err)
	}
	for _, s := range setups {
		_, err := p.RefreshSetup(ctx, org, s)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// pollAfter is when a top-up that is still pending is asked about without an event.
const pollAfter = time.Minute

// Poll asks Stripe about top-ups that have been pending for a while, in case every event was lost, and says how many
// it settled. Run it every minute.
func (p *Payments) Poll(ctx context.Context) (n int, err error) { return p.poll(ctx, pollAfter) }

func (p *Payments) poll(ctx context.Context, after time.Duration) (n int, err error) {
	pending, err := p.d.Q.ClaimPendingTopups(ctx, after.Seconds(), batchRows)
	if err != nil {
		return 0, fmt.Errorf("pending top-ups: %w", err)
	}
	var errs []error
	for _, t := range pending {
		sent, ok, err := p.out.Find(ctx, topupKey(t))
		if err == nil && !ok {
			err = errors.New("it was never queued for Stripe")
		}
		if err == nil && sent.Done {
			_, err = p.refresh(ctx, sent.Object)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("poll %s: %w", t, err), p.pollFailed(ctx, t, err))
			continue
		}
		now, err := p.d.Q.Topup(ctx, t)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("poll %s: %w", t, err))
		case now.State != string(Pending):
			n++
			errs = append(errs, notify.DropDeadLetter(ctx, p.d.Q, queuePoll, t.String()))
		case now.ActionURL != "" && time.Since(now.CreatedAt) > refreshFor:
			errs = append(errs, p.giveUp(ctx, now))
		}
	}
	return n, errors.Join(errs...)
}

const (
	batchRows = 50 // rows that a job takes at a time
	// workersPerKind is how many events a replica processes at once.
	workersPerKind = 8
	// backOffWait is when work is tried again that was not done because Stripe limits our rate.
	backOffWait = 10 * time.Second
)

// queuePoll names top-ups that cannot be asked about among the dead letters.
const queuePoll = "topup_poll"

// pollFailed has a top-up that could not be asked about asked about again later.
func (p *Payments) pollFailed(ctx context.Context, t id.TopUp, why error) error {
	if stripe.IsBackOff(why) {
		return p.d.Q.PostponeTopupPoll(ctx, backOffWait.Seconds(), t)
	}
	wait, err := notify.DeadLetter(ctx, p.d, queuePoll, t.String(), why)
	if err != nil {
		return err
	}
	return p.d.Q.PostponeTopupPoll(ctx, wait.Seconds(), t)
}

// RefreshObject asks Stripe for the present state of an object of its, such as dp_… or re_…, and books it, as an event
// that names it does. The note says why nothing was to be done.
func (p *Payments) RefreshObject(ctx context.Context, object string) (note string, err error) {
	return p.refresh(ctx, object)
}

// refresh asks Stripe for the present state of an object and books it. The note says why nothing was to be done.
func (p *Payments) refresh(ctx context.Context, object string) (note string, err error) {
	switch {
	case strings.HasPrefix(object, "pi_"):
		return p.refreshPayment(ctx, object, false)
	case strings.HasPrefix(object, "cs_"):
		return p.refreshCheckout(ctx, object)
	case strings.HasPrefix(object, "seti_"):
		return p.refreshSetup(ctx, object, false)
	case strings.HasPrefix(object, "re_"):
		return p.refreshRefund(ctx, object)
	case strings.HasPrefix(object, "dp_"), strings.HasPrefix(object, "du_"):
		return p.refreshDispute(ctx, object)
	case strings.HasPrefix(object, "issfr_"):
		return p.refreshFraudWarning(ctx, object)
	case strings.HasPrefix(object, "mtr_"):
		return p.meterErrors(ctx, object)
	}
	if note, watched, err := p.watch(ctx, object); watched {
		return note, err
	}
	return "of no concern", nil
}

// refreshPayment books a payment. over says that the page it belongs to is closed.
func (p *Payments) refreshPayment(ctx context.Context, payment string, over bool) (note string, err error) {
	pay, err := p.stripe.Payment(ctx, payment)
	if err != nil {
		return ifMissing(err)
	}
	if pay.Invoice != "" {
		if note, watched, err := p.watch(ctx, pay.Invoice); watched {
			return note, err
		}
	}
	topup, err := id.Parse[id.TopUp](pay.TopUp)
	if err != nil {
		return notOurs, nil
	}
	kind, err := p.kindOf(ctx, topup)
	if err != nil {
		return notOurs, err
	}
	if kind == "" { // a restore may have lost it
		lost, err := p.d.Q.LostInRestore(ctx, madeAt(topup.UUID()))
		if err != nil || !lost {
			return notOurs, err
		}
		a, err := p.adoptPayment(ctx, pay, nil)
		return a.Note, err
	}
	return "", p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return p.settle(ctx, tx, topup, pay, over || kind == kindPayment)
	})
}

const notOurs = "not a top-up of this platform"

// kindOf is how a top-up is paid; "" when there is no such top-up.
func (p *Payments) kindOf(ctx context.Context, topup id.TopUp) (string, error) {
	sent, _, err := p.out.Find(ctx, topupKey(topup))
	return sent.Kind, err
}

func (p *Payments) refreshCheckout(ctx context.Context, session string) (note string, err error) {
	page, err := p.stripe.Checkout(ctx, session)
	if err != nil {
		return ifMissing(err)
	}
	if page.Setup != "" {
		return p.refreshSetup(ctx, page.Setup, !page.Open)
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
	if e := stripe.As(err); e != nil && e.Outcome == stripe.Missing {
		return "Stripe does not know it", nil
	}
	return "", err
}

// Watch registers who reads objects whose ids begin with prefix, such as "tr_".
func (p *Payments) Watch(prefix string, refresh func(ctx context.Context, object string) (note string, err error)) {
	p.watchers[prefix] = refresh
}

// watch passes an object to who watches objects with ids like this one; watched is false if there is none.
func (p *Payments) watch(ctx context.Context, object string) (note string, watched bool, err error) {
	for prefix, refresh := range p.watchers {
		if strings.HasPrefix(object, prefix) {
			note, err := refresh(ctx, object)
			return note, true, err
		}
	}
	return "", false, nil
}
