package ledger

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Balance returns the account's balance, credit minus debit; 0 for an account that was never used.
func Balance(ctx context.Context, q *dbq.Queries, a Account) (money.Nano, error) {
	n, err := q.LedgerBalance(ctx, string(a.Kind), pgtype.UUID{Bytes: a.Owner, Valid: true}, a.Currency)
	if db.NoRows(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read balance: %w", err)
	}
	return money.Nano(n), nil
}

// Spendable returns what can be taken out of the account: its balance and its credit, less what is reserved.
func Spendable(ctx context.Context, q *dbq.Queries, a Account) (money.Nano, error) {
	n, err := q.LedgerSpendable(ctx, string(a.Kind), pgtype.UUID{Bytes: a.Owner, Valid: true}, a.Currency)
	if db.NoRows(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read spendable: %w", err)
	}
	return money.Nano(n), nil
}

// TransferIDs returns the ids of the transfers of the entry with this key, in their order.
func TransferIDs(ctx context.Context, q *dbq.Queries, key string) ([]id.LedgerTransfer, error) {
	ids, err := q.LedgerTransferIDs(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read transfers of %s: %w", key, err)
	}
	return ids, nil
}

// Balances is what an org has.
type Balances struct {
	Available money.Nano // in its wallet; below zero as far as it runs on credit
	Credit    money.Nano // how far the wallet may fall below zero; not part of a Line
	Reserved  money.Nano // of Available, claimed by disputes and not to be spent; may exceed it; not part of a Line
	Owed      money.Nano // used on credit and billed, and not yet paid
	Held      money.Nano // set aside for its clusters
	Earned    money.Nano // by its hosts and not paid out, payable or not yet
	Bond      money.Nano // kept as the bond of its hosts, whether or not it is reserved for a lease
}

// RetireHolds retires the empty holds of settled clusters whose settlement did not, a bounded number at a time, and
// returns how many.
func RetireHolds(ctx context.Context, d *db.DB) (int, error) {
	n, err := d.Q.RetireLedgerHolds(ctx, 5000)
	if err != nil {
		return 0, fmt.Errorf("retire holds: %w", err)
	}
	return int(n), nil
}

// OrgBalances reads the org's balances in one statement, so that they belong together.
func OrgBalances(ctx context.Context, q *dbq.Queries, org id.Org, currency string) (Balances, error) {
	rows, err := q.LedgerOrgBalances(ctx, org)
	if err != nil {
		return Balances{}, fmt.Errorf("read balances: %w", err)
	}
	var b Balances
	for _, r := range rows {
		if r.Currency != currency {
			continue
		}
		b.add(Kind(r.Kind), money.Nano(r.Amount), money.Nano(r.Credit), money.Nano(r.Reserved))
	}
	return b, nil
}

// BalancesOf reads the balances of several orgs in one statement. One without accounts has none.
func BalancesOf(ctx context.Context, q *dbq.Queries, orgs []id.Org, currency string) (map[id.Org]Balances, error) {
	ids := make([]pgtype.UUID, len(orgs))
	for i, o := range orgs {
		ids[i] = pgtype.UUID{Bytes: o.UUID(), Valid: true}
	}
	rows, err := q.LedgerBalancesOfOrgs(ctx, ids, currency)
	if err != nil {
		return nil, fmt.Errorf("read balances of %d orgs: %w", len(orgs), err)
	}
	out := make(map[id.Org]Balances, len(orgs))
	for _, r := range rows {
		b := out[r.OrgID]
		b.add(Kind(r.Kind), money.Nano(r.Amount), money.Nano(r.Credit), money.Nano(r.Reserved))
		out[r.OrgID] = b
	}
	return out, nil
}

// add counts what is in an org's accounts of a kind.
func (b *Balances) add(k Kind, amount, credit, reserved money.Nano) {
	switch k {
	case KindRenterWallet:
		b.Available, b.Credit, b.Reserved = amount, credit, reserved
	case KindReceivable:
		b.Owed = -amount
	case KindRenterHold:
		b.Held = amount
	case KindHostPending, KindHostPayable:
		b.Earned += amount
	case KindHostBond, KindBondHold:
		b.Bond += amount
	}
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

// History returns the org's entries in one currency, newest first, those older than before (zero: from the newest), at
// most limit. A page costs the same however long the history is: the chain keeps running balances, and what is not in
// the chain yet is counted on from them.
func History(ctx context.Context, q *dbq.Queries, org id.Org, currency string, before id.LedgerTx,
	limit int) ([]Line, error) {
	rows, err := q.LedgerHistory(ctx, dbq.LedgerHistoryParams{
		Org:      org,
		Currency: currency,
		Before:   before,
		MaxRows:  int32(limit),
	})
	if err != nil {
		return nil, fmt.Errorf("read history of account: %w", err)
	}
	out := make([]Line, len(rows))
	has := map[Kind]money.Nano{}
	tail := 0 // so many are not in the chain yet; they build on the newest that is
	for i := len(rows) - 1; i >= 0; i-- {
		r := rows[i]
		did, err := amounts(r.Change)
		if err != nil {
			return nil, err
		}
		if r.N != unlinked {
			if has, err = amounts(r.After); err != nil {
				return nil, err
			}
		} else {
			tail++
			for k, n := range did {
				has[k] += n
			}
		}
		out[i] = Line{
			Tx:     r.ID,
			At:     r.CreatedAt,
			Kind:   r.Kind,
			Memo:   r.Memo,
			Ref:    r.Ref,
			Change: balances(did),
			After:  balances(has),
		}
	}
	if !before.IsZero() && len(rows) > 0 {
		if rows[0].BeforeIsLinked {
			out = out[tail:]
		} else {
			i := slices.IndexFunc(out[:tail], func(l Line) bool { return l.Tx == before })
			if i < 0 {
				return nil, nil // an entry that is not this org's
			}
			out = out[i+1:]
		}
	}
	return out[:min(limit, len(out))], nil
}

// unlinked stands for the place of an entry that is not in the chain yet.
const unlinked = math.MaxInt64

func balances(by map[Kind]money.Nano) Balances {
	return Balances{
		Available: by[KindRenterWallet],
		Owed:      -by[KindReceivable],
		Held:      by[KindRenterHold],
		Earned:    by[KindHostPending] + by[KindHostPayable],
		Bond:      by[KindHostBond] + by[KindBondHold],
	}
}
