package ledger

import (
	"context"
	"fmt"
	"math/big"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/money"
)

// TrialBalance is the books seen at one moment. Amounts are nano-units, of any size.
type TrialBalance struct {
	Totals []Total
	// Debits is Σ of all debit balances, Credits of all credit balances. Equal in sound books.
	Debits, Credits *big.Int
	// Problems says what is wrong, empty in sound books.
	Problems []string
}

// Total is the balance of all accounts of a kind, credit minus debit.
type Total struct {
	Kind     Kind
	Currency string
	Amount   *big.Int
}

// Balanced reports whether the books are sound.
func (b TrialBalance) Balanced() bool { return len(b.Problems) == 0 }

// Check adds up every transfer ever booked and compares: debits with credits, per currency; every cached balance with
// the sum of its transfers and with its floor; what was given back of each lease's charges with the charges. It reads
// one snapshot.
func Check(ctx context.Context, d *db.DB) (TrialBalance, error) {
	var b TrialBalance
	err := d.InSnapshot(ctx, func(ctx context.Context, q *dbq.Queries) (err error) {
		b, err = check(ctx, q)
		return err
	})
	return b, err
}

// Overdrawn is an org's account with less than nothing in it.
type Overdrawn struct {
	Account
	Balance money.Nano // below zero
}

// BelowZero lists orgs' accounts with less than nothing in them, the lowest first, at most limit. What a host earned
// can be among them, when charges are given back after it was paid out, and a wallet whose credit was lowered below
// what is used of it, till that is billed; other wallets and holds never are. What orgs owe is not among them: see
// Receivable.
func BelowZero(ctx context.Context, q *dbq.Queries, limit int) ([]Overdrawn, error) {
	rows, err := q.LedgerBelowZero(ctx, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("ledger: below zero: %w", err)
	}
	out := make([]Overdrawn, len(rows))
	for i, r := range rows {
		out[i] = Overdrawn{Account{Kind(r.Kind), r.Owner.Bytes, r.OrgID, r.Currency}, r.Amount}
	}
	return out, nil
}

func check(ctx context.Context, q *dbq.Queries) (TrialBalance, error) {
	b := TrialBalance{Debits: new(big.Int), Credits: new(big.Int)}
	totals, err := q.LedgerKindTotals(ctx)
	if err != nil {
		return b, fmt.Errorf("ledger: check totals: %w", err)
	}
	perCurrency := map[string]*big.Int{}
	for _, r := range totals {
		n, ok := new(big.Int).SetString(r.Amount, 10)
		if !ok {
			return b, fmt.Errorf("ledger: check: total %q", r.Amount)
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
	wrong, err := q.LedgerMismatches(ctx)
	if err != nil {
		return b, fmt.Errorf("ledger: check balances: %w", err)
	}
	for _, w := range wrong {
		b.Problems = append(b.Problems, fmt.Sprintf("%s %s: balance %s, transfers add up to %s", w.Kind, w.ID,
			money.Nano(w.Cached), w.Summed))
	}
	empty, err := q.LedgerEmptyTxs(ctx)
	if err != nil {
		return b, fmt.Errorf("ledger: check entries: %w", err)
	}
	if empty > 0 {
		b.Problems = append(b.Problems, fmt.Sprintf("%d entries without transfers", empty))
	}
	over, err := q.LedgerOvercorrected(ctx)
	if err != nil {
		return b, fmt.Errorf("ledger: check corrections: %w", err)
	}
	for _, o := range over {
		b.Problems = append(b.Problems, fmt.Sprintf("lease %s: %s was given back of charges of %s", o.Lease, o.GivenBack,
			o.Charged))
	}
	return b, nil
}
