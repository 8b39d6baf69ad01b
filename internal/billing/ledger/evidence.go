package ledger

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/billing/billproof"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/merkle"
)

// Charges returns the charges for the object with this prefixed id and their corrections, if keep reports true for
// them, with their places in the chain, and the chain from the first of them to its newest batch. q should be a
// snapshot.
func Charges(ctx context.Context, q *dbq.Queries, ref string,
	keep func(billproof.Tx) bool) ([]billproof.Entry, []billproof.Batch, error) {
	ids, err := q.LedgerChargesOf(ctx, ref)
	if err != nil {
		return nil, nil, fmt.Errorf("read charges of %s: %w", ref, err)
	}
	txs, _, err := read(ctx, q, ids)
	if err != nil {
		return nil, nil, fmt.Errorf("read charges of %s: %w", ref, err)
	}
	var out []billproof.Entry
	var kept []id.LedgerTx
	for _, t := range txs {
		if keep(t.Tx) {
			out = append(out, billproof.Entry{Tx: t.Tx})
			kept = append(kept, t.id)
		}
	}
	batches, err := place(ctx, q, out, kept)
	if err != nil {
		return nil, nil, fmt.Errorf("chain of %s: %w", ref, err)
	}
	return out, batches, nil
}

// place fills in where the chain holds the entries.
func place(ctx context.Context, q *dbq.Queries, entries []billproof.Entry,
	ids []id.LedgerTx) ([]billproof.Batch, error) {
	at := make(map[id.LedgerTx]int, len(ids))
	for i, x := range ids {
		at[x] = i
	}
	links, err := q.LedgerLinksOf(ctx, id.UUIDs(ids...))
	if err != nil || len(links) == 0 {
		return nil, err
	}
	var leaves [][32]byte
	for i, l := range links { // by batch
		if i == 0 || links[i-1].Batch != l.Batch {
			members, err := q.LedgerBatchTxIDs(ctx, l.Batch)
			if err != nil {
				return nil, err
			}
			txs, _, err := read(ctx, q, members)
			if err != nil {
				return nil, err
			}
			leaves = leaves[:0]
			for _, t := range txs { // by id, as they were when the batch was made
				leaves = append(leaves, t.Hash())
			}
		}
		e := &entries[at[l.TxID]]
		e.Batch, e.Position, e.Path = l.Batch, int(l.Position), merkle.Path(leaves, int(l.Position))
	}
	last, err := q.LastLedgerBatch(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := q.LedgerBatches(ctx, links[0].Batch, last.N)
	if err != nil {
		return nil, err
	}
	out := make([]billproof.Batch, len(rows))
	for i, b := range rows {
		out[i] = batchOf(b)
	}
	return out, nil
}

func batchOf(b dbq.LedgerBatch) billproof.Batch {
	return billproof.Batch{N: b.N, MadeAt: b.MadeAt.UTC(), Txs: int(b.Txs), Root: b.Root, Prev: b.Prev, Hash: b.Hash}
}

// Head returns the newest batch of the chain; nil when there is none yet.
func Head(ctx context.Context, q *dbq.Queries) (*billproof.Batch, error) {
	last, err := q.LastLedgerBatch(ctx)
	if db.NoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the last batch: %w", err)
	}
	b := batchOf(last)
	return &b, nil
}
