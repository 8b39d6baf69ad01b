package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/billing/billproof"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/merkle"
)

const (
	// dayBatches bounds the batches of one closed day, so that closing one is a bounded transaction: at most
	// dayBatches × batchTxs entries.
	dayBatches = 1500
	// checkDayAfter is how long the totals of a closed day are trusted before they are compared with its entries again.
	checkDayAfter = 24 * time.Hour
)

// CloseDays freezes the totals of days that have been over for an hour: for each account what it moved and what it had,
// for each kind of account what it moved, and by the kinds of entries what moved from where to where. It seals each day
// with what the chain does not cover. It returns how many days were closed. Run it hourly, by any replica.
func CloseDays(ctx context.Context, d *db.DB) (closed int, err error) {
	for ctx.Err() == nil {
		if err := sealDays(ctx, d); err != nil {
			return closed, err
		}
		did := false
		err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			did = false
			if err := tx.Q.LockLedgerDays(ctx); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = '10min'"); err != nil {
				return err
			}
			last, err := tx.Q.LastLedgerDay(ctx)
			if err != nil && !db.NoRows(err) {
				return err
			}
			through, err := tx.Q.NextLedgerDay(ctx, dayBatches, last.ThroughBatch)
			if err != nil || through == 0 {
				return err
			}
			did = true
			if err := tx.Q.CloseLedgerDay(ctx, last.N+1, last.ThroughBatch, through); err != nil {
				return err
			}
			return seal(ctx, tx, last.N+1, last.ThroughBatch, through)
		})
		if err != nil {
			return closed, fmt.Errorf("close a day: %w", err)
		}
		if !did {
			return closed, nil
		}
		closed++
	}
	return closed, ctx.Err()
}

// sealDays seals the days that an earlier version closed, the oldest first.
func sealDays(ctx context.Context, d *db.DB) error {
	for more := true; more && ctx.Err() == nil; {
		err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			if err := tx.Q.LockLedgerDays(ctx); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = '10min'"); err != nil {
				return err
			}
			day, err := tx.Q.LedgerDayToSeal(ctx)
			if more = err == nil; !more && db.NoRows(err) {
				return nil
			}
			if err != nil {
				return err
			}
			return seal(ctx, tx, day.N, day.AfterBatch, day.ThroughBatch)
		})
		if err != nil {
			return fmt.Errorf("seal a day: %w", err)
		}
	}
	return ctx.Err()
}

// seal adds to a closed day what moved by kinds of entries, and its seal. The day before is sealed.
func seal(ctx context.Context, tx *db.Tx, n, after, through int64) error {
	if err := tx.Q.InsertLedgerDayFlows(ctx, n, after, through); err != nil {
		return err
	}
	line, err := tx.Q.LastLedgerLineOf(ctx, after, through)
	if err != nil {
		return err
	}
	return tx.Q.SealLedgerDay(ctx, line, n)
}

// CheckDay compares the closed day that was checked longest ago with its entries, if that was over a day ago: the
// hashes of its batches with the entries themselves, its totals with their sums, the lines that organisations see with
// what the entries did, its seal with the rows that it covers, the balances of accounts that were retired since with
// what they had. What does not agree is recorded, reported by Check until the day agrees again, and returned as an
// error.
func CheckDay(ctx context.Context, d *db.DB) (checked int, err error) {
	day, err := d.Q.LedgerDayToCheck(ctx)
	if db.NoRows(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the next day to check: %w", err)
	}
	now, err := d.Q.DatabaseTime(ctx)
	if err != nil || now.Sub(day.CheckedAt) < checkDayAfter {
		return 0, err
	}
	var problems []string
	err = d.InSnapshot(ctx, func(ctx context.Context, q *dbq.Queries) (err error) {
		problems, err = problemsOf(ctx, q, day)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("check day %d: %w", day.N, err)
	}
	problem := strings.Join(problems, "; ")
	if err := d.Q.LedgerDayChecked(ctx, problem, day.N); err != nil {
		return 0, fmt.Errorf("check day %d: %w", day.N, err)
	}
	if problem != "" {
		return 1, fmt.Errorf("closed day %d differs from its entries: %s", day.N, problem)
	}
	return 1, nil
}

func problemsOf(ctx context.Context, q *dbq.Queries, day dbq.LedgerDayToCheckRow) (out []string, err error) {
	x, err := q.LedgerDayDifferences(ctx, day.AfterBatch, day.ThroughBatch, day.N)
	if err != nil {
		return nil, err
	}
	for _, c := range []struct {
		n    int64
		what string
	}{
		{x.Transfers - day.Transfers, "transfers more than counted"},
		{x.Txs - day.Txs, "entries more than counted"},
		{x.Accounts, "accounts moved an amount other than their total"},
		{x.Carried, "accounts have a balance that differs from the earlier one plus what moved"},
		{x.Kinds, "kinds of accounts moved an amount other than their total"},
		{day.AfterBatch - day.BeforeBatch, "batches between it and the day before"},
	} {
		if c.n != 0 {
			out = append(out, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	sealed, err := problemsOfSealed(ctx, q, day)
	if err != nil {
		return nil, err
	}
	out = append(out, sealed...)
	batches, err := q.LedgerBatches(ctx, day.AfterBatch+1, day.ThroughBatch)
	if err != nil {
		return nil, err
	}
	var prev []byte
	for _, b := range batches {
		switch err := checkBatch(ctx, q, b, prev); {
		case errors.Is(err, errTampered):
			out = append(out, fmt.Sprintf("batch %d: %v", b.N, err))
		case err != nil:
			return nil, err
		}
		prev = b.Hash
	}
	if !bytes.Equal(prev, day.Hash) {
		out = append(out, "the hash of its last batch differs")
	}
	wrong, err := q.RetiredLedgerMismatches(ctx, day.N, day.ThroughBatch)
	if err != nil {
		return nil, err
	}
	for _, w := range wrong {
		out = append(out, fmt.Sprintf("%s %s, retired: balance %d, entries add up to %s", w.Kind, w.ID, int64(w.Cached),
			w.Summed))
	}
	return out, nil
}

// problemsOfSealed are those of what the chain does not cover.
func problemsOfSealed(ctx context.Context, q *dbq.Queries, day dbq.LedgerDayToCheckRow) (out []string, err error) {
	same, err := q.LedgerDaySealed(ctx, day.N)
	if err == nil && !same {
		out = append(out, "the seal differs")
	}
	if err != nil || day.ThroughLine == nil {
		return out, err
	}
	x, err := q.LedgerLineDifferences(ctx, dbq.LedgerLineDifferencesParams{After: day.AfterBatch,
		Through: day.ThroughBatch, AfterLine: day.AfterLine, ThroughLine: *day.ThroughLine, N: day.N})
	if err != nil {
		return nil, err
	}
	for _, c := range []struct {
		n    int64
		what string
	}{
		{x.Lines, "lines of organisations are not what the entries did"},
		{x.Carried, "lines of organisations do not follow from those before"},
		{x.Flows, "kinds of entries moved an amount other than their total"},
	} {
		if c.n != 0 {
			out = append(out, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	return out, nil
}

var errTampered = errors.New("its hash is not that of its entries")

// checkBatch recomputes a batch's hash from its entries. prev is the hash of the batch before; nil when it is not
// known.
func checkBatch(ctx context.Context, q *dbq.Queries, b dbq.LedgerBatch, prev []byte) error {
	ids, err := q.LedgerBatchTxIDs(ctx, b.N)
	if err != nil {
		return err
	}
	place := make(map[id.LedgerTx]int, len(ids))
	for i, x := range ids {
		place[x] = i
	}
	txs, _, err := read(ctx, q, ids)
	if err != nil {
		return err
	}
	leaves := make([][32]byte, len(ids))
	for _, t := range txs {
		leaves[place[t.id]] = t.Hash()
	}
	root := merkle.Root(leaves)
	again := billproof.Batch{N: b.N, MadeAt: b.MadeAt, Txs: len(txs), Root: root[:], Prev: b.Prev}
	if len(txs) != int(b.Txs) || !bytes.Equal(root[:], b.Root) || !bytes.Equal(again.Sum(), b.Hash) ||
		prev != nil && !bytes.Equal(prev, b.Prev) {
		return errTampered
	}
	return nil
}
