package ledger

import (
	"context"
	"fmt"
	"math/big"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/money"
)

// TrialBalance is the ledger seen at one moment. Amounts are nano-units, of any size.
type TrialBalance struct {
	Totals []Total
	// Debits is Σ of all debit balances, Credits of all credit balances. Equal in sound books.
	Debits, Credits *big.Int
	// Problems are what is wrong; empty if the ledger is sound.
	Problems []string
}

// Total is the balance of all accounts of a kind, credit minus debit.
type Total struct {
	Kind     Kind
	Currency string
	Amount   *big.Int
}

// Balanced reports whether the ledger is sound.
func (b TrialBalance) Balanced() bool { return len(b.Problems) == 0 }

// Check compares, per currency, debits with credits; every balance that there should be with the sum of its transfers
// and with its floor; credit with the terms that lend it, and reserves with the disputes that claim them; what was
// given back of each lease's charges with the charges. Of closed days it reads the frozen totals and
// what CheckDay found, and of the days since every transfer, so it costs what happened since. It reads one snapshot.
func Check(ctx context.Context, d *db.DB) (TrialBalance, error) {
	var b TrialBalance
	err := d.InSnapshot(ctx, func(ctx context.Context, q *dbq.Queries) (err error) {
		last, err := q.LastLedgerDay(ctx)
		if db.NoRows(err) {
			b, err = check(ctx, allEntries(q))
			return err
		}
		if err != nil {
			return fmt.Errorf("read the last closed day: %w", err)
		}
		if b, err = check(ctx, openEntries(q, last.ThroughBatch)); err != nil {
			return err
		}
		days, err := q.LedgerDayProblems(ctx)
		if err != nil {
			return fmt.Errorf("check closed days: %w", err)
		}
		for _, x := range days {
			b.Problems = append(b.Problems, fmt.Sprintf("closed day %d: %s", x.N, x.Problem))
		}
		return nil
	})
	return b, err
}

// CheckAll is Check of every transfer ever booked, whatever is closed: it costs as much as all of history.
func CheckAll(ctx context.Context, d *db.DB) (TrialBalance, error) {
	var b TrialBalance
	err := d.InSnapshot(ctx, func(ctx context.Context, q *dbq.Queries) (err error) {
		b, err = check(ctx, allEntries(q))
		return err
	})
	return b, err
}

// sums are what check reads of the entries.
type sums struct {
	totals        func(context.Context) ([]dbq.LedgerKindTotalsRow, error)
	mismatches    func(context.Context) ([]dbq.LedgerMismatchesRow, error)
	empty         func(context.Context) (int64, error)
	overcorrected func(context.Context) ([]dbq.LedgerOvercorrectedRow, error)
	unbacked      func(context.Context) ([]dbq.LedgerUnbackedRow, error)
}

// cachedKinds have a balance row each account, and those of flooredKinds a floor.
var (
	cachedKinds  = kindsWhere(func(cached, _ bool) bool { return cached })
	flooredKinds = kindsWhere(func(_, floored bool) bool { return floored })
)

func allEntries(q *dbq.Queries) sums {
	return sums{q.LedgerKindTotals, func(ctx context.Context) ([]dbq.LedgerMismatchesRow, error) {
		return q.LedgerMismatches(ctx, cachedKinds, flooredKinds)
	}, q.LedgerEmptyTxs, q.LedgerOvercorrected, q.LedgerUnbacked}
}

// openEntries are those of batches after through, on top of the frozen totals.
func openEntries(q *dbq.Queries, through int64) sums {
	return sums{
		totals: func(ctx context.Context) ([]dbq.LedgerKindTotalsRow, error) {
			rows, err := q.OpenLedgerKindTotals(ctx, through)
			out := make([]dbq.LedgerKindTotalsRow, len(rows))
			for i, r := range rows {
				out[i] = dbq.LedgerKindTotalsRow(r)
			}
			return out, err
		},
		mismatches: func(ctx context.Context) ([]dbq.LedgerMismatchesRow, error) {
			rows, err := q.OpenLedgerMismatches(ctx, cachedKinds, flooredKinds, through)
			out := make([]dbq.LedgerMismatchesRow, len(rows))
			for i, r := range rows {
				out[i] = dbq.LedgerMismatchesRow(r)
			}
			return out, err
		},
		empty: func(ctx context.Context) (int64, error) { return q.OpenLedgerEmptyTxs(ctx, through) },
		overcorrected: func(ctx context.Context) ([]dbq.LedgerOvercorrectedRow, error) {
			rows, err := q.OpenLedgerOvercorrected(ctx, through)
			out := make([]dbq.LedgerOvercorrectedRow, len(rows))
			for i, r := range rows {
				out[i] = dbq.LedgerOvercorrectedRow(r)
			}
			return out, err
		},
		unbacked: q.LedgerUnbacked,
	}
}

// Overdrawn is an org's account with less than nothing in it.
type Overdrawn struct {
	Account
	Balance money.Nano // below zero
}

// BelowZero lists orgs' accounts with less than nothing in them, the lowest first, at most limit. What a host earned
// can be among them, when charges are given back after it was paid out, and a wallet whose credit was lowered below
// what is used of it, until that is billed; other wallets and holds never are. What orgs owe is not among them: see
// Receivable.
func BelowZero(ctx context.Context, q *dbq.Queries, limit int) ([]Overdrawn, error) {
	rows, err := q.LedgerBelowZero(ctx, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("read balances below zero: %w", err)
	}
	out := make([]Overdrawn, len(rows))
	for i, r := range rows {
		out[i] = Overdrawn{Account{Kind(r.Kind), r.Owner.Bytes, r.OrgID, r.Currency}, r.Amount}
	}
	return out, nil
}

func check(ctx context.Context, of sums) (TrialBalance, error) {
	b := TrialBalance{Debits: new(big.Int), Credits: new(big.Int)}
	totals, err := of.totals(ctx)
	if err != nil {
		return b, fmt.Errorf("check totals: %w", err)
	}
	perCurrency := map[string]*big.Int{}
	for _, r := range totals {
		n, ok := new(big.Int).SetString(r.Amount, 10)
		if !ok {
			return b, fmt.Errorf("check: total %q", r.Amount)
		}
		b.Totals = append(b.Totals, Total{Kind(r.Kind), r.Currency, n})
		if n.Sign() < 0 {
			b.Debits.Sub(b.Debits, n)
		} else {
			b.Credits.Add(b.Credits, n)
		}
		if perCurrency[r.Currency] == nil {
			perCurrency[r.Currency] = new(big.Int)
		}
		perCurrency[r.Currency].Add(perCurrency[r.Currency], n)
	}
	for cur, n := range perCurrency {
		if n.Sign() != 0 {
			b.Problems = append(b.Problems, fmt.Sprintf("%s: debits and credits differ by %s", cur, n))
		}
	}
	wrong, err := of.mismatches(ctx)
	if err != nil {
		return b, fmt.Errorf("check balances: %w", err)
	}
	for _, w := range wrong {
		if w.Missing {
			b.Problems = append(b.Problems, fmt.Sprintf("%s %s: the balance is missing, transfers add up to %s", w.Kind, w.ID,
				w.Summed))
			continue
		}
		b.Problems = append(b.Problems, fmt.Sprintf("%s %s: balance %s, transfers add up to %s", w.Kind, w.ID,
			money.Nano(w.Cached), w.Summed))
	}
	unbacked, err := of.unbacked(ctx)
	if err != nil {
		return b, fmt.Errorf("check credit and reserves: %w", err)
	}
	for _, u := range unbacked {
		b.Problems = append(b.Problems, fmt.Sprintf("%s %s: credit %s of %s lent, %s reserved of %s claimed", u.Kind, u.ID,
			u.Credit, money.Nano(u.Lent), u.Reserved, money.Nano(u.Claimed)))
	}
	empty, err := of.empty(ctx)
	if err != nil {
		return b, fmt.Errorf("check entries: %w", err)
	}
	if empty > 0 {
		b.Problems = append(b.Problems, fmt.Sprintf("%d entries without transfers", empty))
	}
	over, err := of.overcorrected(ctx)
	if err != nil {
		return b, fmt.Errorf("check corrections: %w", err)
	}
	for _, o := range over {
		b.Problems = append(b.Problems, fmt.Sprintf("lease %s: %s was given back of charges of %s", o.Lease, o.GivenBack,
			o.Charged))
	}
	return b, nil
}
