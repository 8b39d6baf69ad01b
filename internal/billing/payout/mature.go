package payout

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/claim"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// DefaultHoldback is how long earnings wait when nothing else is configured.
const DefaultHoldback = 7 * 24 * time.Hour

// idSlack is how far a server's clock, which makes ids, may be from PostgreSQL's.
const idSlack = time.Hour

// cutoffAt returns the last moment whose earnings are past the holdback. Holdbacks of a day or more end with whole
// hours, by which earnings are added up as they are booked: then nothing but those sums is read.
func cutoffAt(now time.Time, holdback time.Duration) time.Time {
	cutoff := now.Add(-holdback)
	if holdback >= 24*time.Hour {
		return cutoff.Truncate(time.Hour).Add(-time.Microsecond)
	}
	return cutoff
}

// Mature makes payable what every operator earned before the holdback began, and returns for how many operators
// something became payable. Run it every few minutes; any replica may, and a crash between operators loses nothing.
func Mature(ctx context.Context, d *db.DB, holdback time.Duration) (n int, err error) {
	return MatureAfter(ctx, d, Holdback{Usual: holdback})
}

// MatureAfter is Mature with a holdback that may be longer for new operators.
func MatureAfter(ctx context.Context, d *db.DB, holdback Holdback) (n int, err error) {
	all, err := d.Q.OperatorsWithPending(ctx)
	if err != nil {
		return 0, fmt.Errorf("read operators: %w", err)
	}
	prices := medians{}
	var errs []error
	for _, o := range all {
		if ctx.Err() != nil {
			break
		}
		usual, err := prices.in(ctx, d.Q, o.Currency)
		if err != nil {
			return n, errors.Join(append(errs, err)...)
		}
		did := false
		err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			now, err := tx.Now(ctx)
			if err != nil {
				return err
			}
			first, err := firstEarned(ctx, tx.Q, o.OrgID, o.Currency, now)
			if err != nil {
				return err
			}
			did, err = mature(ctx, tx, o.OrgID, o.Currency, cutoffAt(now, holdback.of(first, now)), usual)
			return err
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("mature for %s: %w", o.OrgID, err))
		}
		if did && err == nil {
			n++
		}
	}
	return n, errors.Join(errs...)
}

// medians are the usual prices of GPUs by currency, read once for a pass.
type medians map[string]bond.Medians

func (m medians) in(ctx context.Context, q *dbq.Queries, currency string) (bond.Medians, error) {
	if m[currency] == nil {
		now, err := q.DatabaseTime(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the clock: %w", err)
		}
		if m[currency], err = bond.ReadMedians(ctx, q, currency, now); err != nil {
			return nil, err
		}
	}
	return m[currency], nil
}

// mature makes payable what one operator earned until the cutoff, less all that was ever taken from it, less what was
// paid for with payments that are disputed, and less what is in review. What waits for two reasons is counted once. A
// part of it is kept as bond, by what GPUs usually cost; of an operator who owes something, nothing is.
func mature(ctx context.Context, tx *db.Tx, org id.Org, currency string, cutoff time.Time,
	usual bond.Medians) (did bool, err error) {
	pending, payable, kept := ledger.HostPending(org, currency), ledger.HostPayable(org, currency),
		ledger.HostBond(org, currency)
	retaining, err := bond.ReadRetaining(ctx, tx.Q, org, usual)
	if err != nil {
		return false, err
	}
	has, err := bond.Account(ctx, tx.Q, org, currency)
	if err != nil {
		return false, err
	}
	if retaining.Any() {
		has = []ledger.Account{kept}
	}
	books, err := ledger.Lock(ctx, tx, append(has, pending, payable)...)
	if err != nil {
		return false, err
	}
	if err := bond.Answer(ctx, tx, books, org, currency); err != nil {
		return false, err
	}
	var inBond money.Nano // reserved for leases or not
	if books.Has(kept) {
		if inBond, err = bond.Held(ctx, tx.Q, org, currency); err != nil {
			return false, err
		}
		inBond += books.Balance(kept)
	}
	// also while frozen: a link that is there now may be gone later
	held, err := setAside(ctx, tx, org, currency, cutoff, max(0, books.Balance(pending))+books.Balance(payable)+inBond)
	if err != nil {
		return false, err
	}
	frozen, err := metering.Frozen(ctx, tx.Q, org)
	if err != nil || len(frozen) > 0 {
		return false, err
	}
	young, err := earnedSince(ctx, tx.Q, org, currency, cutoff)
	if err != nil {
		return false, err
	}
	disputes, err := claim.Disputes(ctx, tx.Q, currency, cutoff, org)
	if err != nil {
		return false, err
	}
	_, alone := claim.Disputed(disputes[org], true)
	if err := tx.Q.SetMaturedThrough(ctx, org, currency, cutoff); err != nil {
		return false, fmt.Errorf("set matured earnings of %s: %w", org, err)
	}
	due := books.Balance(pending) - young - held - alone
	if due <= 0 {
		return false, nil
	}
	entry := id.New[id.LedgerTx]().String()
	did, err = books.Post(ctx, ledger.Entry{
		Kind: "payout_mature", Key: "payout_mature:" + entry, Ref: org.String(),
		Memo:      fmt.Sprintf("%s is payable: earned until %s UTC", due, cutoff.Format("2006-01-02 15:04")),
		Transfers: []ledger.Transfer{{Debit: pending, Credit: payable, Amount: due}},
	})
	if err != nil || !retaining.Any() {
		return did, err
	}
	owed, err := claim.Owed(ctx, tx.Q, org, currency)
	if err != nil || owed > 0 {
		return did, err
	}
	keep := retaining.Retained(due, inBond)
	if keep == 0 {
		return did, nil
	}
	_, err = books.Post(ctx, ledger.Entry{
		Kind: "bond_retain", Key: "bond_retain:" + entry, Ref: org.String(), Memo: "kept for the bond of your hosts",
		Transfers: []ledger.Transfer{{Debit: payable, Credit: kept, Amount: keep}},
	})
	return did, err
}

func earnedSince(ctx context.Context, q *dbq.Queries, org id.Org, currency string,
	cutoff time.Time) (money.Nano, error) {
	n, err := q.EarnedSince(ctx, pgtype.UUID{Bytes: org.UUID(), Valid: true}, currency, cutoff)
	if err != nil {
		return 0, fmt.Errorf("read earnings of %s since %s: %w", org, cutoff, err)
	}
	return money.Nano(n), nil
}

// firstID is before all version 7 UUIDs made at t or later.
func firstID(t time.Time) pgtype.UUID {
	var b uuid.UUID
	binary.BigEndian.PutUint64(b[:8], uint64(max(0, t.UnixMilli()))<<16)
	return pgtype.UUID{Bytes: b, Valid: true}
}
