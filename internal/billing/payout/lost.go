package payout

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Advice is what a review suggests when nothing else is known. Nothing in review is ever released without a person.
type Advice = client.PayoutAdvice

const (
	AdviseRefuse  = client.AdviseRefuse
	AdviseRelease = client.AdviseRelease
)

const (
	// newFor is how long an operator counts as new after its first earnings.
	newFor = 90 * 24 * time.Hour
	// mostOfOne is the share of an operator's earnings, in percent, from which one renter is most of its business.
	mostOfOne = 50
)

// adviceOn returns what to do with earnings from a renter who lost a dispute, of an operator that first earned so long
// ago: a stolen card is turned into cash by renting one's own, new host, whose only renter one is.
func adviceOn(age time.Duration, earned, fromRenter money.Nano) Advice {
	if age < newFor || fromRenter > earned/100*mostOfOne {
		return AdviseRefuse
	}
	return AdviseRelease
}

// Holdback is how long earnings wait before they become payable.
type Holdback struct {
	Usual time.Duration
	New   time.Duration // of operators that first earned less than 90 days ago, if it is longer
}

// of returns the holdback of an operator that first earned at the given time.
func (h Holdback) of(first, now time.Time) time.Duration {
	if now.Sub(first) < newFor {
		return max(h.Usual, h.New)
	}
	return h.Usual
}

// firstEarned returns when an operator first earned; now when it never has.
func firstEarned(ctx context.Context, q *dbq.Queries, org id.Org, currency string, now time.Time) (time.Time, error) {
	first, err := q.FirstEarned(ctx, pgtype.UUID{Bytes: org.UUID(), Valid: true}, currency)
	if db.NoRows(err) {
		return now, nil
	}
	if err != nil {
		return now, fmt.Errorf("read first earnings of %s: %w", org, err)
	}
	return first, nil
}

// openLost opens a review for every renter who paid the operator and lost a dispute of that payment: what comes from it
// and is not paid out waits for a person. Each loss is taken over once, whenever that is. The caller holds the lock on
// host_pending; unpaid is what is pending, payable, and in the bond.
func openLost(ctx context.Context, tx *db.Tx, org id.Org, currency string, matured time.Time, unpaid money.Nano) error {
	if err := tx.Q.QueueLostDisputes(ctx, org, currency, matured); err != nil {
		return fmt.Errorf("queue lost disputes of those who paid %s: %w", org, err)
	}
	lost, err := tx.Q.LostRenters(ctx, org, currency)
	if err != nil {
		return fmt.Errorf("read renters of %s who lost disputes: %w", org, err)
	}
	for _, l := range lost {
		if err := takeOver(ctx, tx, org, currency, matured, unpaid, l); err != nil {
			return fmt.Errorf("open review of %s for %s: %w", l.RenterOrgID, org, err)
		}
	}
	return nil
}

func takeOver(ctx context.Context, tx *db.Tx, org id.Org, currency string, matured time.Time, unpaid money.Nano,
	l dbq.LostRentersRow) error {
	s, err := tx.Q.OperatorStanding(ctx, pgtype.UUID{
		Bytes: org.UUID(),
		Valid: true,
	}, currency, pgtype.UUID{Bytes: l.RenterOrgID.UUID(), Valid: true})
	if err != nil {
		return fmt.Errorf("read standing of %s: %w", org, err)
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	limit := money.Nano(l.Lost)
	if err := tx.Q.OpenLostReview(ctx, dbq.OpenLostReviewParams{
		ID:          id.New[id.PayoutReview](),
		HostOrgID:   org,
		RenterOrgID: l.RenterOrgID,
		Currency:    currency,
		Matured:     matured,
		PaidAt:      l.PaidAt,
		Unpaid:      int64(unpaid),
		HeldLimit:   &limit,
		Advice:      string(adviceOn(now.Sub(s.Since), money.Nano(s.Earned), money.Nano(s.FromRenter))),
	}); err != nil {
		return fmt.Errorf("insert review: %w", err)
	}
	if err := tx.Q.ReviewedLostDisputes(ctx, org, l.Disputes); err != nil {
		return fmt.Errorf("mark disputes: %w", err)
	}
	return nil
}
