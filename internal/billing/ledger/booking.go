package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Booking is entries that are about to be booked under keys that no other transaction can have used: Prepare, then
// QueueWrite. It locks the balances as late as it can, so that transactions that wait for one of them (an operator's
// earnings, which many renters pay into) wait for two inserts, an update and a commit and no more. It does not read the
// balances: the database enforces floors.
type Booking struct {
	txs       dbq.InsertNewLedgerTxsParams
	transfers dbq.InsertLedgerTransfersParams
	balances  []pgtype.UUID // that move
}

// Prepare makes the accounts exist. It locks nothing unless one is new.
func Prepare(ctx context.Context, tx *db.Tx, entries []Entry) (*Booking, error) {
	b := &Booking{}
	if len(entries) == 0 {
		return b, nil
	}
	want := map[accountKey]Account{}
	for i := range entries {
		e := &entries[i]
		if err := e.check(); err != nil {
			return nil, err
		}
		if !e.Corrects.IsZero() {
			return nil, fmt.Errorf("entry %q corrects another: look at that under a lock", e.Key)
		}
		e.id = id.New[id.LedgerTx]()
		b.txs.Ids, b.txs.Kinds, b.txs.Keys = append(b.txs.Ids, raw(e.id)), append(b.txs.Kinds, e.Kind),
			append(b.txs.Keys, e.Key)
		b.txs.Memos, b.txs.Refs = append(b.txs.Memos, e.Memo), append(b.txs.Refs, e.Ref)
		for _, t := range e.Transfers {
			for _, a := range []Account{t.Debit, t.Credit} {
				if _, ok := kinds[a.Kind]; !ok {
					return nil, fmt.Errorf("no account kind %q", a.Kind)
				}
				want[a.key()] = a
			}
		}
	}
	l := &Locked{tx, make(map[accountKey]*held, len(want))}
	if err := l.find(ctx, want); err != nil {
		return nil, err
	}
	if len(l.by) < len(want) {
		if err := l.lock(ctx, want); err != nil {
			return nil, err
		}
	}
	var err error
	if b.transfers, err = l.transfers(entries); err != nil {
		return nil, err
	}
	for _, h := range l.by {
		if h.cached && h.delta != 0 {
			b.balances = append(b.balances, raw(h.id))
		}
	}
	return b, nil
}

// QueueWrite queues the writes that book the entries. Should a key be in the ledger already, or a balance fall below
// its floor, the batch fails.
func (k *Booking) QueueWrite(b *pgx.Batch) {
	if len(k.txs.Ids) == 0 {
		return
	}
	db.Write(b, (*dbq.Queries).InsertNewLedgerTxs, k.txs)
	if len(k.balances) > 0 {
		// Before the transfers: inserting them adds to the sums of operators' earnings, which are written under these locks.
		db.Write(b, (*dbq.Queries).LockLedgerBalancesInOrder, k.balances)
	}
	db.Write(b, (*dbq.Queries).InsertLedgerTransfers, k.transfers)
}
