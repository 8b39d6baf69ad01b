package db_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func orgs(t *testing.T, d *db.DB) (n int) {
	t.Helper()
	if err := d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM org WHERE name = 'o'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Whatever kind of statement comes first, it is inside the transaction.
func TestTheFirstStatementBegins(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	boom := errors.New("boom")
	const insert = "INSERT INTO org (id, name, personal) VALUES ($1, 'o', true) RETURNING name"
	for what, first := range map[string]func(ctx context.Context, tx *db.Tx) error{
		"exec": func(ctx context.Context, tx *db.Tx) error {
			tag, err := tx.Exec(ctx, insert, id.New[id.Org]())
			if tag.RowsAffected() != 1 {
				t.Errorf("%s", tag)
			}
			return err
		},
		"row": func(ctx context.Context, tx *db.Tx) error {
			var name string
			err := tx.QueryRow(ctx, insert, id.New[id.Org]()).Scan(&name)
			if name != "o" {
				t.Errorf("read %q", name)
			}
			return err
		},
		"rows": func(ctx context.Context, tx *db.Tx) error {
			rows, err := tx.Query(ctx, insert, id.New[id.Org]())
			if err != nil {
				return err
			}
			names, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if len(names) != 1 {
				t.Errorf("read %q", names)
			}
			return err
		},
		"batch": func(ctx context.Context, tx *db.Tx) error {
			return tx.Send(ctx, insertOrg(id.New[id.Org]()))
		},
	} {
		before := orgs(t, d)
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if err := first(ctx, tx); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			_, err := tx.Exec(ctx, "SELECT 1") // the connection is free again
			return errors.Join(err, boom)
		})
		if !errors.Is(err, boom) || orgs(t, d) != before {
			t.Errorf("%s: %v; %d orgs before, %d after a rollback", what, err, before, orgs(t, d))
		}
		if err := d.InTx(t.Context(), first); err != nil || orgs(t, d) != before+1 {
			t.Errorf("%s: %v; %d orgs before, %d after a commit", what, err, before, orgs(t, d))
		}
	}
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		var v int
		return tx.QueryRow(ctx, "SELECT 1 WHERE false").Scan(&v)
	})
	if !db.NoRows(err) {
		t.Errorf("no rows: %v", err)
	}
	if err := d.InTx(t.Context(), func(context.Context, *db.Tx) error { return nil }); err != nil {
		t.Errorf("nothing asked: %v", err)
	}
}

func TestLastGoesAlongWithTheCommit(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	told := 0
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		tx.AfterCommit(func() { told++ })
		tx.Last = insertOrg(id.New[id.Org]()) // also the first
		return nil
	})
	if err != nil || orgs(t, d) != 1 || told != 1 {
		t.Fatalf("%v, %d orgs, told %d times", err, orgs(t, d), told)
	}

	twice := id.New[id.Org]()
	err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		tx.AfterCommit(func() { told++ })
		if err := tx.Send(ctx, insertOrg(twice)); err != nil {
			return err
		}
		tx.Last = insertOrg(twice)
		return nil
	})
	if !db.IsUnique(err, "org_pkey") || orgs(t, d) != 1 || told != 1 {
		t.Errorf("%v, %d orgs, told %d times", err, orgs(t, d), told)
	}

	boom := errors.New("boom")
	err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		tx.Last = insertOrg(id.New[id.Org]())
		return boom
	})
	if !errors.Is(err, boom) || orgs(t, d) != 1 {
		t.Errorf("%v, %d orgs", err, orgs(t, d))
	}

	err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		tx.Last = insertOrg(id.New[id.Org]())
		if err := tx.Send(ctx, insertOrg(id.New[id.Org]())); err == nil {
			t.Error("a statement after the last ones")
		}
		return nil
	})
	if err != nil || orgs(t, d) != 2 {
		t.Errorf("%v, %d orgs", err, orgs(t, d))
	}
}

// A use case that goes on after a statement has failed does not pass for done.
func TestAFailedTransactionIsNotCommitted(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, _ = tx.Exec(ctx, "SELECT 1/0")
		return nil
	})
	if !errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Errorf("%v", err)
	}
}
