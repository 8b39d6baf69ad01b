package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Balance is the account's balance, credit minus debit; 0 for an account that was never used.
func Balance(ctx context.Context, q *dbq.Queries, a Account) (money.Nano, error) {
	n, err := q.LedgerBalance(ctx, string(a.Kind), pgtype.UUID{Bytes: a.Owner, Valid: true}, a.Currency)
	if db.NoRows(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("ledger: balance: %w", err)
	}
	return money.Nano(n), nil
}

// Balances is what an org has.
type Balances struct {
	Available money.Nano // in its wallet
	Held      money.Nano // set aside for its clusters
	Earned    money.Nano // by its hosts, not yet payable
}

// OrgBalances reads the org's balances in one statement, so that they belong together.
func OrgBalances(ctx context.Context, q *dbq.Queries, org id.Org, currency string) (Balances, error) {
	rows, err := q.LedgerOrgBalances(ctx, org)
	if err != nil {
		return Balances{}, fmt.Errorf("ledger: balances: %w", err)
	}
	var b Balances
	for _, r := range rows {
		if r.Currency != currency {
			continue
		}
		switch Kind(r.Kind) {
		case KindRenterWallet:
			b.Available = money.Nano(r.Amount)
		case KindRenterHold:
			b.Held = money.Nano(r.Amount)
		case KindHostPending:
			b.Earned = money.Nano(r.Amount)
		}
	}
	return b, nil
}

// Line is one entry as the org it concerns sees it: what it changed, and what the org had right after it.
type Line struct {
	Tx        id.LedgerTx
	At        time.Time
	Kind      string
	Memo, Ref string
	Change    Balances
	After     Balances
}

// History is the org's entries, newest first, those older than before (zero: from the newest), at most limit.
func History(ctx context.Context, q *dbq.Queries, org id.Org, before id.LedgerTx, limit int) ([]Line, error) {
	rows, err := q.LedgerHistory(ctx, raw(before), int32(limit), org)
	if err != nil {
		return nil, fmt.Errorf("ledger: history: %w", err)
	}
	out := make([]Line, len(rows))
	for i, r := range rows {
		out[i] = Line{
			Tx: r.ID, At: r.CreatedAt, Kind: r.Kind, Memo: r.Memo, Ref: r.Ref,
			Change: Balances{money.Nano(r.Available), money.Nano(r.Held), money.Nano(r.Earned)},
			After:  Balances{money.Nano(r.AvailableAfter), money.Nano(r.HeldAfter), money.Nano(r.EarnedAfter)},
		}
	}
	return out, nil
}
