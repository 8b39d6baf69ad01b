// Package restore adopts a database that was restored to an earlier time: hosts and Stripe know more than it does.
//
// Invariants:
//   - A server does not start on a database that was restored or copied, as far as PostgreSQL shows it, before an admin
//     has adopted it.
//   - An adoption may die anywhere and be run again; once it is complete, running it again changes nothing.
//   - Its first transaction pauses the sending of money, raises the control epoch and records that the platform
//     received no reports since the backup. Everything after that only books what Stripe says has happened.
//   - What happened at Stripe and was lost from the database is booked once, under the ids that it had before.
package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
)

// identity is what PostgreSQL shows about which database this is.
type identity struct{ system, database, timeline int64 }

// identify reads the identity; known is false if PostgreSQL does not let the role read it.
func identify(ctx context.Context, d *db.DB) (i identity, known bool, err error) {
	const visible = `SELECT has_function_privilege('pg_control_system()', 'EXECUTE') AND
		has_function_privilege('pg_walfile_name(pg_lsn)', 'EXECUTE')
		AND has_function_privilege('pg_current_wal_lsn()', 'EXECUTE')`
	if err := d.Pool.QueryRow(ctx, visible).Scan(&known); err != nil || !known {
		return i, false, err
	}
	const read = `SELECT (SELECT system_identifier FROM pg_control_system()), (SELECT oid::bigint FROM pg_database WHERE
		datname = current_database()),
		('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint`
	err = d.Pool.QueryRow(ctx, read).Scan(&i.system, &i.database, &i.timeline)
	return i, err == nil, err
}

// ErrRestored means that the database was restored or copied and not adopted.
var ErrRestored = errors.New("this database is not the one that the last server used, as after a restore to an " +
	"earlier moment, a copy, " +
	"a promoted standby, a dump that was read back, or pg_upgrade. Before any server starts, run once: muster server " +
	"adopt-restore " +
	"(after a restore or a copy that may lack commits), or muster server adopt-restore --nothing-lost (if no commit " +
	"was lost)")

// ErrUnfinished means that an adoption was begun and is not complete.
var ErrUnfinished = errors.New("a restored database is adopted only in part: run muster server adopt-restore again; " +
	"it goes on where it stopped")

// Check refuses a database that was restored or copied and that no admin has adopted. It accepts the database of the
// first server. With losslessFailover it also accepts a standby that was promoted, because that loses no commit. It
// returns ErrRestored, ErrUnfinished, or an error of the database.
func Check(ctx context.Context, d *db.DB, losslessFailover bool) error {
	now, known, err := identify(ctx, d)
	if err != nil {
		return fmt.Errorf("identity of the database: %w", err)
	}
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		c, err := tx.Q.ControlForUpdate(ctx)
		if err != nil {
			return fmt.Errorf("lock the control row: %w", err)
		}
		last, err := tx.Q.LastRestore(ctx)
		switch {
		case err != nil && !db.NoRows(err):
			return fmt.Errorf("last restore: %w", err)
		case err == nil && last.FinishedAt == nil:
			return ErrUnfinished
		case !known:
			return nil
		}
		before := identityOf(c)
		switch {
		case c.SystemID == nil, losslessFailover && before.system == now.system && before.database == now.database &&
			before.timeline < now.timeline:
			return now.save(ctx, tx)
		case before != now:
			return ErrRestored
		}
		return nil
	})
}

func identityOf(c dbq.ControlForUpdateRow) (i identity) {
	if c.SystemID != nil && c.DatabaseOid != nil && c.Timeline != nil {
		i = identity{*c.SystemID, *c.DatabaseOid, *c.Timeline}
	}
	return i
}

func (i identity) save(ctx context.Context, tx *db.Tx) error {
	if err := tx.Q.SetDatabaseIdentity(ctx, i.system, i.database, i.timeline); err != nil {
		return fmt.Errorf("record the identity of the database: %w", err)
	}
	return nil
}
