package volume

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// The level of a data domain is what is billed of it from a moment on: packs that snapshots need, unless the store has
// lost them, and packs that the store has shown and no commit has named yet. A pack that nothing needs any more is not
// billed. If a commit names it again before it is deleted, it is billed for the time between, too.

// moved is what a change of a data domain's packs adds to its bytes, takes from those that are granted, and adds to
// what is billed for the time before (byte microseconds).
type moved struct {
	bytes, granted int64
	regained       pgtype.Numeric
}

// setLevel changes what a locked domain stores, and what is billed of it, from now on.
func setLevel(ctx context.Context, tx *db.Tx, domain id.DataDomain, m moved, now time.Time) error {
	if !m.regained.Valid {
		m.regained = pgtype.Numeric{Int: new(big.Int), Valid: true}
	}
	err := tx.Q.AddDataBytes(ctx, m.bytes, m.granted, domain)
	if err == nil {
		err = tx.Q.SetDataLevel(ctx, now, m.regained, domain)
	}
	if err == nil {
		next := now.Add(ChargeEvery)
		err = tx.Q.InsertDataMeter(ctx, domain, now, &next)
	}
	if err != nil {
		return fmt.Errorf("level of %s: %w", domain, err)
	}
	return nil
}

// levelNow records what is billed of a locked domain after the store has shown packs, or packs were lost or found
// again.
func levelNow(ctx context.Context, tx *db.Tx, domain id.DataDomain) error {
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	return setLevel(ctx, tx, domain, moved{}, now)
}

// levelsOf returns the levels of rows, without what was regained.
func levelsOf(rows []dbq.DataLevelsRow) []level {
	levels := make([]level, len(rows))
	for i, r := range rows {
		levels[i] = level{r.FromAt, r.Bytes}
	}
	return levels
}

// metered returns the byte microseconds that are billed between two moments. rows are those of DataLevels for them, or
// for a longer time.
func metered(rows []dbq.DataLevelsRow, from, until time.Time) *big.Int {
	sum := byteMicros(levelsOf(rows), from, until)
	for _, r := range rows {
		if !r.FromAt.Before(from) && r.FromAt.Before(until) {
			sum.Add(sum, integer(r.Regained))
		}
	}
	return sum
}
