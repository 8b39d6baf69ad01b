package payment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
)

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
	if _, err := p.in.Refresh(ctx, sent.Object); err != nil {
		p.log.WarnContext(ctx, "a payment cannot be read from Stripe now", "topup", topup, "err", err)
	}
	return p.Get(ctx, org, topup)
}

// RefreshOrg asks Stripe now about what an org waits for, for a payer who comes back from one of Stripe's pages.
func (p *Payments) RefreshOrg(ctx context.Context, org id.Org) error {
	const atMost = 5
	topups, err := p.d.Q.PendingTopupsOfOrg(ctx, org, atMost)
	if err != nil {
		return fmt.Errorf("list what is pending for %s: %w", org, err)
	}
	setups, err := p.d.Q.PendingCardSetupsOfOrg(ctx, org, atMost)
	if err != nil {
		return fmt.Errorf("list what is pending for %s: %w", org, err)
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

// Poll asks Stripe about top-ups that have been pending for a while, in case every event was lost, and returns how many
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
			_, err = p.in.Refresh(ctx, sent.Object)
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

// refreshPayment books a payment. over reports that the page it belongs to is closed.
func (p *Payments) refreshPayment(ctx context.Context, payment string, over bool) (note string, err error) {
	pay, err := p.stripe.Payment(ctx, payment)
	if err != nil {
		return ifMissing(err)
	}
	if pay.Invoice != "" && p.biller != nil {
		return p.RefreshInvoice(ctx, pay.Invoice)
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
