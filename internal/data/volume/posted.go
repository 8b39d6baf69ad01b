package volume

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Posted is what was charged for a data domain at once: what it stored since the posting before.
type Posted struct {
	At     time.Time
	Domain id.DataDomain
	Names  string // of the volumes that share it
	// ByteMicros is bytes × microseconds, between the moments at which the two postings were written.
	ByteMicros *big.Int
	Amount     money.Nano
}

// PostedTo returns what an organisation was charged for storage between two moments, oldest first. since is the least
// ledger id that may be needed.
func PostedTo(ctx context.Context, q *dbq.Queries, org id.Org, currency string, since pgtype.UUID, from,
	until time.Time) ([]Posted, error) {
	rows, err := q.StoragePosted(ctx, dbq.StoragePostedParams{
		OrgID: org, Currency: currency, FromID: since, FromTime: from, ToTime: until,
	})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	out := make([]Posted, len(rows))
	of := map[id.DataDomain][]int{} // indices of rows
	var domains []id.DataDomain
	for i, r := range rows {
		domain, err := id.Parse[id.DataDomain](r.Ref)
		if err != nil {
			return nil, fmt.Errorf("read what %s stored: %w", org, err)
		}
		if of[domain] == nil {
			domains = append(domains, domain)
		}
		of[domain] = append(of[domain], i)
		out[i] = Posted{At: r.CreatedAt.UTC(), Domain: domain, Amount: money.Nano(r.Amount)}
	}
	names, err := q.DomainNames(ctx, from, id.UUIDs(domains...))
	if err != nil {
		return nil, fmt.Errorf("names of volumes of %s: %w", org, err)
	}
	for _, n := range names {
		for _, i := range of[n.DomainID] {
			out[i].Names = n.Names
		}
	}
	for domain, at := range of {
		if err := measure(ctx, q, domain, rows, at, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// measure sets what a domain stored between its postings, which are at these indices.
func measure(ctx context.Context, q *dbq.Queries, domain id.DataDomain, rows []dbq.StoragePostedRow, at []int,
	out []Posted) error {
	began := func(i int) time.Time {
		if p := rows[i].PreviousAt; p != nil {
			return *p
		}
		return time.Time{}
	}
	first, last := at[0], at[len(at)-1]
	changes, err := q.DataLevels(ctx, domain, rows[last].CreatedAt, began(first))
	if err != nil {
		return fmt.Errorf("levels of %s: %w", domain, err)
	}
	for _, i := range at {
		out[i].ByteMicros = metered(changes, began(i), rows[i].CreatedAt)
	}
	return nil
}

// GBHours returns bytes × microseconds as decimal GB-hours, to the millionth below.
func GBHours(byteMicros *big.Int) string {
	n := new(big.Int).Mul(byteMicros, big.NewInt(1_000_000))
	whole, frac := n.Quo(n, perGBHour).QuoRem(n, big.NewInt(1_000_000), new(big.Int))
	return fmt.Sprintf("%d.%06d", whole, frac)
}
