package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Dispute is a dispute of a payment, open or lost and in no review yet, with what an operator earned since that payment
// from the org that paid.
type Dispute struct {
	Renter     id.Org
	Amount     money.Nano
	Earned     money.Nano // since the payment
	Young      money.Nano // of it, in the holdback
	Reviewable money.Nano // of it, what a review looks at
	Held       money.Nano // in review, of all that was earned from the renter: the newest of what a review looks at
}

// Disputed returns how much of what was earned is disputed, and how much of that waits for no other reason, when what
// is in review waits anyhow and, with holdback, what is young does too. Every nano-unit counts once: two disputes of
// one renter do not claim the same money, and what waits anyhow is the first to be what is disputed, for money has no
// name. The disputes of a renter stand together, the latest payment first.
func Disputed(all []Dispute, holdback bool) (total, alone money.Nano) {
	for i := 0; i < len(all); {
		var claimed, extra money.Nano
		renter := all[i].Renter
		for ; i < len(all) && all[i].Renter == renter; i++ {
			d := all[i]
			claimed = min(claimed+d.Amount, d.Earned) // an earlier payment's time holds all of a later one's
			waits := min(d.Held, d.Reviewable)
			if holdback {
				waits += d.Young
			}
			extra = max(extra, claimed-waits)
		}
		total, alone = total+claimed, alone+extra
	}
	return total, alone
}

// Disputes reads the disputes of those who paid operators, by operator. What was earned after the cutoff is young.
func Disputes(ctx context.Context, q *dbq.Queries, currency string, cutoff time.Time,
	orgs ...id.Org) (map[id.Org][]Dispute, error) {
	ids := make([]pgtype.UUID, len(orgs))
	for i, o := range orgs {
		ids[i] = pgtype.UUID{Bytes: o.UUID(), Valid: true}
	}
	rows, err := q.DisputedEarnings(ctx, ids, cutoff, currency)
	if err != nil {
		return nil, fmt.Errorf("read disputed earnings: %w", err)
	}
	out := map[id.Org][]Dispute{}
	for _, r := range rows {
		out[r.HostOrgID] = append(out[r.HostOrgID], Dispute{
			Renter:     r.RenterOrgID,
			Amount:     money.Nano(r.Amount),
			Earned:     money.Nano(r.Earned),
			Young:      money.Nano(r.Young),
			Reviewable: money.Nano(r.Reviewable),
			Held:       money.Nano(r.Held),
		})
	}
	return out, nil
}
