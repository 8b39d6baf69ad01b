package payout

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// dispute is an open dispute of a payment, with what an operator earned since that payment from the org that paid.
type dispute struct {
	renter     id.Org
	amount     money.Nano
	earned     money.Nano // since the payment
	young      money.Nano // of it, in the holdback
	reviewable money.Nano // of it, what a review looks at
	held       money.Nano // in review, of all that was earned from the renter: the newest of what a review looks at
}

// disputed returns how much of what was earned is disputed, and how much of that waits for no other reason, when what
// is in review waits anyhow and, with holdback, what is young does too. Every nano-unit counts once: two disputes of
// one renter do not claim the same money, and what waits anyhow is the first to be what is disputed, for money has no
// name. The disputes of a renter stand together, the latest payment first.
func disputed(all []dispute, holdback bool) (total, alone money.Nano) {
	for i := 0; i < len(all); {
		var claimed, extra money.Nano
		renter := all[i].renter
		for ; i < len(all) && all[i].renter == renter; i++ {
			d := all[i]
			claimed = min(claimed+d.amount, d.earned) // an earlier payment's time holds all of a later one's
			waits := min(d.held, d.reviewable)
			if holdback {
				waits += d.young
			}
			extra = max(extra, claimed-waits)
		}
		total, alone = total+claimed, alone+extra
	}
	return total, alone
}

// disputesOf reads the open disputes of those who paid operators, by operator.
func disputesOf(ctx context.Context, q *dbq.Queries, currency string, cutoff time.Time,
	orgs ...id.Org) (map[id.Org][]dispute, error) {
	rows, err := q.DisputedEarnings(ctx, rawOrgs(orgs...), cutoff, currency)
	if err != nil {
		return nil, fmt.Errorf("read disputed earnings: %w", err)
	}
	out := map[id.Org][]dispute{}
	for _, r := range rows {
		out[r.HostOrgID] = append(out[r.HostOrgID], dispute{r.RenterOrgID, money.Nano(r.Amount), money.Nano(r.Earned),
			money.Nano(r.Young), money.Nano(r.Reviewable), money.Nano(r.Held)})
	}
	return out, nil
}

// disputedOutsideReview returns what of an operator's earnings is disputed and not in review: the review holds the rest
// already.
func disputedOutsideReview(ctx context.Context, q *dbq.Queries, org id.Org, currency string) (money.Nano, error) {
	all, err := disputesOf(ctx, q, currency, time.Time{}, org)
	if err != nil {
		return 0, err
	}
	_, alone := disputed(all[org], false)
	return alone, nil
}
