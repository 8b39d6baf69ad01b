package payment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
)

// refreshFor is how long a payer has to answer their bank.
const refreshFor = 24 * time.Hour

// Refresh asks Stripe about one of the org's top-ups now, for a payer who comes back from paying, and is Get.
func (ts *TopUps) Refresh(ctx context.Context, org id.Org, topup id.TopUp) (TopUp, error) {
	t, err := ts.Get(ctx, org, topup)
	if err != nil || t.State != Pending {
		return t, err
	}
	sent, ok, err := ts.out.Find(ctx, topupKey(topup))
	if err != nil || !ok || !sent.Done {
		return t, err
	}
	if _, err := ts.in.Refresh(ctx, sent.Object); err != nil {
		ts.log.WarnContext(ctx, "a payment cannot be read from Stripe now", "topup", topup, "err", err)
	}
	return ts.Get(ctx, org, topup)
}

// RefreshOrg asks Stripe now about what an org waits for, for a payer who comes back from one of Stripe's pages.
func (ts *TopUps) RefreshOrg(ctx context.Context, org id.Org) error {
	const atMost = 5
	topups, err := ts.d.Q.PendingTopupsOfOrg(ctx, org, atMost)
	if err != nil {
		return fmt.Errorf("list what is pending for %s: %w", org, err)
	}
	setups, err := ts.d.Q.PendingCardSetupsOfOrg(ctx, org, atMost)
	if err != nil {
		return fmt.Errorf("list what is pending for %s: %w", org, err)
	}
	var errs []error
	for _, t := range topups {
		_, err := ts.Refresh(ctx, org, t)
		errs = append(errs, err)
	}
	for _, s := range setups {
		_, err := ts.cards.RefreshSetup(ctx, org, s)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// pollAfter is when a top-up that is still pending is asked about without an event.
const pollAfter = time.Minute

// Poll asks Stripe about top-ups that have been pending for a while, in case every event was lost, and returns how many
// it settled. Run it every minute.
func (ts *TopUps) Poll(ctx context.Context) (n int, err error) { return ts.poll(ctx, pollAfter) }

func (ts *TopUps) poll(ctx context.Context, after time.Duration) (n int, err error) {
	pending, err := ts.d.Q.ClaimPendingTopups(ctx, after.Seconds(), batchRows)
	if err != nil {
		return 0, fmt.Errorf("pending top-ups: %w", err)
	}
	var errs []error
	for _, t := range pending {
		sent, ok, err := ts.out.Find(ctx, topupKey(t))
		if err == nil && !ok {
			err = errors.New("it was never queued for Stripe")
		}
		if err == nil && sent.Done {
			_, err = ts.in.Refresh(ctx, sent.Object)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("poll %s: %w", t, err), ts.pollFailed(ctx, t, err))
			continue
		}
		now, err := ts.d.Q.Topup(ctx, t)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("poll %s: %w", t, err))
		case now.State != string(Pending):
			n++
			errs = append(errs, notify.DropDeadLetter(ctx, ts.d.Q, queuePoll, t.String()))
		case now.ActionURL != "" && time.Since(now.CreatedAt) > refreshFor:
			errs = append(errs, ts.giveUp(ctx, now))
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
func (ts *TopUps) pollFailed(ctx context.Context, t id.TopUp, why error) error {
	if stripe.IsBackOff(why) {
		return ts.d.Q.PostponeTopupPoll(ctx, backOffWait.Seconds(), t)
	}
	wait, err := notify.DeadLetter(ctx, ts.d, queuePoll, t.String(), why)
	if err != nil {
		return err
	}
	return ts.d.Q.PostponeTopupPoll(ctx, wait.Seconds(), t)
}

const notOurs = "not a top-up of this platform"

// kindOf is how a top-up is paid; "" when there is no such top-up.
func (ts *TopUps) kindOf(ctx context.Context, topup id.TopUp) (string, error) {
	sent, _, err := ts.out.Find(ctx, topupKey(topup))
	return sent.Kind, err
}

// ifMissing turns an object that Stripe does not know into a note; nothing can come of asking again.
func ifMissing(err error) (note string, _ error) {
	if e := stripe.As(err); e != nil && e.Outcome == stripe.Missing {
		return "Stripe does not know it", nil
	}
	return "", err
}
