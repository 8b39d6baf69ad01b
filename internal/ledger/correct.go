package ledger

import (
	"context"
	"fmt"
	"math/big"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Booked is an entry as it stands in the books.
type Booked struct {
	ID id.LedgerTx
	Entry
	At string // RFC 3339, to the microsecond
}

// Search finds entries by id, key or what they belong to (a prefixed id; of an org: all that moved its money), newest
// first, those older than before (zero: from the newest).
func Search(ctx context.Context, q *dbq.Queries, text string, before id.LedgerTx, limit int) ([]Booked, error) {
	ids, err := search(ctx, q, text, before, limit)
	if err != nil {
		return nil, fmt.Errorf("ledger: search: %w", err)
	}
	out, err := booked(ctx, q, ids)
	if err != nil {
		return nil, fmt.Errorf("ledger: search: %w", err)
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out, nil
}

func search(ctx context.Context, q *dbq.Queries, text string, before id.LedgerTx, limit int) ([]id.LedgerTx, error) {
	if org, err := id.Parse[id.Org](text); err == nil {
		return q.SearchLedgerTxsOfOrg(ctx, int32(limit), org, raw(before))
	}
	asked, _ := id.Parse[id.LedgerTx](text) // zero when it is something else: no entry has it
	return q.SearchLedgerTxs(ctx, dbq.SearchLedgerTxsParams{ID: asked, Text: text, Before: raw(before), MaxRows: int32(limit)})
}

// booked reads entries, oldest first.
func booked(ctx context.Context, q *dbq.Queries, ids []id.LedgerTx) ([]Booked, error) {
	rows, err := q.LedgerTxs(ctx, rawIDs(ids))
	if err != nil {
		return nil, err
	}
	transfers, err := q.LedgerTransfersOf(ctx, rawIDs(ids))
	if err != nil {
		return nil, err
	}
	of := map[id.LedgerTx][]Transfer{}
	for _, f := range transfers {
		side := func(kind string, owner pgtype.UUID, org id.Org) Account {
			return Account{Kind: Kind(kind), Owner: owner.Bytes, Org: org, Currency: f.Currency}
		}
		of[f.TxID] = append(of[f.TxID], Transfer{side(f.DebitKind, f.DebitOwner, f.DebitOrg), side(f.CreditKind, f.CreditOwner, f.CreditOrg), f.Amount})
	}
	out := make([]Booked, len(rows))
	for i, r := range rows {
		out[i] = Booked{r.ID, Entry{Kind: r.Kind, Key: r.Key, Memo: r.Memo, Ref: r.Ref, Corrects: r.Corrects, Transfers: of[r.ID]},
			r.CreatedAt.UTC().Format("2006-01-02T15:04:05.000000Z")}
	}
	return out, nil
}

// Compensate gives a charge back to whoever paid it: amount of it, or with zero all that was not given back before, from
// those who got it, each in proportion. What was held when it was charged goes back to the wallet. All that corrects
// one charge never exceeds it: fault.Invalid says how much is left. Only charges for usage are compensated here;
// another entry is fault.Conflict, an unknown one fault.NotFound.
func Compensate(ctx context.Context, tx *db.Tx, charge id.LedgerTx, amount money.Nano, reason string) (Entry, error) {
	if err := tx.Q.LockLedgerCorrections(ctx, charge.String()); err != nil {
		return Entry{}, fmt.Errorf("ledger: compensate: %w", err)
	}
	corrections, err := tx.Q.LedgerCorrections(ctx, charge)
	if err != nil {
		return Entry{}, fmt.Errorf("ledger: compensate: %w", err)
	}
	all, err := booked(ctx, tx.Q, append(corrections, charge))
	if err != nil {
		return Entry{}, fmt.Errorf("ledger: compensate: %w", err)
	}
	e := Entry{Kind: "compensation", Key: fmt.Sprintf("compensation:%s:%d", charge, len(corrections)+1), Memo: reason, Corrects: charge}
	left := map[accountKey]money.Nano{} // what each who was paid has of it still
	var from []Account
	var payer Account
	for _, b := range all {
		if b.ID == charge {
			if b.Kind != "usage" {
				return Entry{}, fault.New(fault.Conflict, "only charges for usage are compensated; this entry is of kind %s", b.Kind)
			}
			e.Ref, payer = b.Ref, Wallet(b.Transfers[0].Debit.Org, b.Transfers[0].Debit.Currency)
			for _, t := range b.Transfers {
				left[t.Credit.key()] += t.Amount
				from = append(from, t.Credit)
			}
			continue
		}
		for _, t := range b.Transfers {
			left[t.Debit.key()] -= t.Amount
		}
	}
	if payer.Kind == "" {
		return Entry{}, fault.New(fault.NotFound, "there is no such entry")
	}
	total := money.Nano(0)
	for _, a := range from {
		total += max(0, left[a.key()])
	}
	if amount == 0 {
		amount = total
	}
	if amount <= 0 || amount > total {
		return Entry{}, fault.InvalidField("amount", "must be above zero and at most %s, what is left of the charge", total.Plain())
	}
	done, seen := money.Nano(0), money.Nano(0)
	for _, a := range from { // cumulative floors: the parts add up
		seen += max(0, left[a.key()])
		part := new(big.Int).Mul(big.NewInt(int64(amount)), big.NewInt(int64(seen)))
		upTo := money.Nano(part.Div(part, big.NewInt(int64(total))).Int64())
		if n := upTo - done; n > 0 {
			e.Transfers = append(e.Transfers, Transfer{Debit: a, Credit: payer, Amount: n})
		}
		done = upTo
	}
	if _, err := Post(ctx, tx, e); err != nil {
		return Entry{}, fmt.Errorf("ledger: compensate %s: %w", charge, err)
	}
	return e, nil
}
