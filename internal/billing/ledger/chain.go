package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/billproof"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/merkle"
	"github.com/musterhq/muster/internal/money"
)

const (
	// BatchEvery is how often batches are made, so that a proof over a year stays small.
	BatchEvery = time.Minute
	batchTxs   = 2000
)

// Link takes entries that are committed into the chain: one batch, with a line for every org each concerns. It reports
// how many. It takes none while the last batch is younger than every, unless enough entries wait to fill a batch. One
// caller at a time, others wait.
func Link(ctx context.Context, d *db.DB, every time.Duration) (n int, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n = 0
		if err := tx.Q.LockLedgerChain(ctx); err != nil {
			return err
		}
		last, err := tx.Q.LastLedgerBatch(ctx)
		if err != nil && !db.NoRows(err) {
			return err
		}
		if db.NoRows(err) {
			last = dbq.LedgerBatch{Hash: make([]byte, 32)}
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		ids, err := tx.Q.TakeLedgerUnlinked(ctx, batchTxs)
		if err != nil || len(ids) == 0 || len(ids) < batchTxs && now.Sub(last.MadeAt) < every {
			if err == nil && len(ids) > 0 {
				return errYoung
			}
			return err
		}
		n = len(ids)
		return appendBatch(ctx, tx, last, now.Truncate(time.Microsecond), ids)
	})
	if err == errYoung {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("take unlinked entries: %w", err)
	}
	return n, nil
}

// errYoung rolls a batch back that is not to be made yet.
var errYoung = fmt.Errorf("the last batch is young")

func appendBatch(ctx context.Context, tx *db.Tx, last dbq.LedgerBatch, now time.Time, ids []id.LedgerTx) error {
	txs, orgs, err := read(ctx, tx.Q, ids)
	if err != nil {
		return err
	}
	if len(txs) != len(ids) {
		return fmt.Errorf("%d of %d entries are there", len(txs), len(ids))
	}
	leaves := make([][32]byte, len(txs))
	raws, positions := make([]pgtype.UUID, len(txs)), make([]int32, len(txs))
	for i, t := range txs {
		leaves[i], positions[i] = t.Hash(), int32(i)
		raws[i] = raw(t.id)
	}
	root := merkle.Root(leaves)
	b := billproof.Batch{N: last.N + 1, MadeAt: now, Txs: len(txs), Root: root[:], Prev: last.Hash}
	lines, err := linesOf(ctx, tx.Q, txs, orgs)
	if err != nil {
		return err
	}
	if err := tx.Q.InsertLedgerBatch(ctx, dbq.InsertLedgerBatchParams{
		N:      b.N,
		MadeAt: b.MadeAt,
		Txs:    int32(b.Txs),
		Root:   b.Root,
		Prev:   b.Prev,
		Hash:   b.Sum(),
	}); err != nil {
		return err
	}
	if err := tx.Q.InsertLedgerLinks(ctx, b.N, raws, positions); err != nil || len(lines.Orgs) == 0 {
		return err
	}
	return tx.Q.InsertLedgerLines(ctx, lines)
}

// chained is an entry as it is hashed.
type chained struct {
	billproof.Tx
	id id.LedgerTx
}

// change is what an entry does to an org's accounts in one currency.
type change struct {
	org      id.Org
	currency string
	by       map[Kind]money.Nano
}

// read gives entries as they are hashed, by id, and what each does to which orgs.
func read(ctx context.Context, q *dbq.Queries, ids []id.LedgerTx) ([]chained, map[id.LedgerTx][]change, error) {
	raws := id.UUIDs(ids...)
	rows, err := q.LedgerTxs(ctx, raws)
	if err != nil {
		return nil, nil, err
	}
	transfers, err := q.LedgerTransfersOf(ctx, raws)
	if err != nil {
		return nil, nil, err
	}
	of := map[id.LedgerTx][]billproof.Transfer{}
	orgs := map[id.LedgerTx][]change{}
	for _, f := range transfers {
		of[f.TxID] = append(of[f.TxID], billproof.Transfer{
			Debit:       f.DebitKind,
			DebitOwner:  f.DebitOwner.Bytes,
			Credit:      f.CreditKind,
			CreditOwner: f.CreditOwner.Bytes,
			Currency:    f.Currency,
			Amount:      int64(f.Amount),
		})
		orgs[f.TxID] = moved(orgs[f.TxID], f.DebitOrg, f.Currency, Kind(f.DebitKind), -f.Amount)
		orgs[f.TxID] = moved(orgs[f.TxID], f.CreditOrg, f.Currency, Kind(f.CreditKind), f.Amount)
	}
	out := make([]chained, len(rows))
	for i, r := range rows {
		out[i] = chained{billproof.Tx{
			ID:        r.ID.String(),
			Kind:      r.Kind,
			Key:       r.Key,
			Memo:      r.Memo,
			Ref:       r.Ref,
			Corrects:  r.Corrects.String(),
			At:        r.CreatedAt.UTC(),
			Transfers: of[r.ID],
		}, r.ID}
	}
	return out, orgs, nil
}

func moved(in []change, org id.Org, currency string, k Kind, n money.Nano) []change {
	if org.IsZero() {
		return in
	}
	for _, c := range in {
		if c.org == org && c.currency == currency {
			c.by[k] += n
			return in
		}
	}
	return append(in, change{org, currency, map[Kind]money.Nano{k: n}})
}

// linesOf carries each org's running balances on.
func linesOf(ctx context.Context, q *dbq.Queries, txs []chained,
	orgs map[id.LedgerTx][]change) (p dbq.InsertLedgerLinesParams, err error) {
	type book struct {
		org      id.Org
		currency string
	}
	after := map[book]map[Kind]money.Nano{}
	var ask []pgtype.UUID
	var currencies []string
	for _, t := range txs {
		for _, c := range orgs[t.id] {
			if k := (book{c.org, c.currency}); after[k] == nil {
				after[k] = map[Kind]money.Nano{}
				ask, currencies = append(ask, raw(c.org)), append(currencies, c.currency)
			}
		}
	}
	last, err := q.LastLedgerLines(ctx, ask, currencies)
	if err != nil {
		return p, err
	}
	for _, l := range last {
		if after[book{id.FromUUID[id.Org](l.OrgID.Bytes), l.Currency}], err = amounts(l.After); err != nil {
			return p, err
		}
	}
	for _, t := range txs {
		for _, c := range orgs[t.id] {
			now := after[book{c.org, c.currency}]
			for k, n := range c.by {
				now[k] += n
			}
			did, err1 := json.Marshal(integers(c.by))
			has, err2 := json.Marshal(integers(now))
			if err1 != nil || err2 != nil {
				return p, fmt.Errorf("%v, %v", err1, err2)
			}
			p.Orgs, p.Txs, p.Currencies = append(p.Orgs, raw(c.org)), append(p.Txs, raw(t.id)), append(p.Currencies, c.currency)
			p.Changes, p.Afters = append(p.Changes, string(did)), append(p.Afters, string(has))
		}
	}
	return p, nil
}

func integers(in map[Kind]money.Nano) map[Kind]int64 {
	out := make(map[Kind]int64, len(in))
	for k, n := range in {
		out[k] = int64(n)
	}
	return out
}

func amounts(b []byte) (map[Kind]money.Nano, error) {
	var in map[Kind]int64
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, fmt.Errorf("amounts of a line: %w", err)
	}
	out := make(map[Kind]money.Nano, len(in))
	for k, n := range in {
		out[k] = money.Nano(n)
	}
	return out, nil
}
