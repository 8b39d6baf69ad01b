// Package owed reads what organisations owe for storage: what their volumes stored and no wallet covered.
//
// What always holds:
//   - What is owed comes first: that much of a wallet can neither be held for a cluster nor leave it for a card or a
//     bond.
//   - An organisation that has owed for more than Grace gets no new quote and rents nothing new.
package owed

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Grace is for how long an organisation may owe for storage and still rent.
const Grace = 24 * time.Hour

// Storage is what an organisation owes for what its volumes stored.
type Storage struct {
	Amount money.Nano
	Since  *time.Time // the first moment that is not paid for; nil: nothing is owed
}

// Read returns what an organisation owes for storage, as it was last charged. To decide about money by it, lock the
// wallet first. It makes one query.
func Read(ctx context.Context, q *dbq.Queries, org id.Org) (out Storage, err error) {
	rows, err := q.UnpaidStorage(ctx, org)
	if err != nil {
		return out, fmt.Errorf("storage that %s owes for: %w", org, err)
	}
	for _, r := range rows {
		out.Amount += money.Nano(r.Owed)
		if out.Since == nil || r.UnpaidSince.Before(*out.Since) {
			out.Since = r.UnpaidSince
		}
	}
	return out, nil
}

// Of returns what is left of an amount of the wallet when storage is paid first.
func (s Storage) Of(wallet money.Nano) money.Nano { return max(0, wallet-s.Amount) }

// Admit refuses a quote or a rent of an organisation that has owed for more than Grace. now is PostgreSQL's clock.
// Fault: InsufficientFunds.
func (s Storage) Admit(now time.Time, currency string) error {
	if s.Since == nil || now.Sub(*s.Since) <= Grace {
		return nil
	}
	f := fault.New(fault.InsufficientFunds, "You owe %s %s for what your volumes stored since %s. Nothing new can be "+
		"rented until it is paid: add at least that much credit, which is charged within seconds, or delete volumes to "+
		"owe no more.", s.Amount.Plain(), currency, s.Since.UTC().Format("2 January 2006"))
	f.Extra = map[string]any{"reason": "storage_owed", "storage_owed": s.Amount.Plain()}
	return f
}
