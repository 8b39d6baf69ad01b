package db_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func TestAfterCommitRunsOnlyAfterCommit(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	var ran []string
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		tx.AfterCommit(func() { ran = append(ran, "a") })
		tx.AfterCommit(func() { ran = append(ran, "b") })
		if len(ran) != 0 {
			t.Error("ran inside the transaction")
		}
		return nil
	})
	if err != nil || len(ran) != 2 || ran[0] != "a" {
		t.Fatalf("ran %v, %v", ran, err)
	}
	boom := errors.New("boom")
	err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		tx.AfterCommit(func() { ran = append(ran, "c") })
		return boom
	})
	if !errors.Is(err, boom) || len(ran) != 2 {
		t.Fatalf("ran %v, %v", ran, err)
	}
}

func TestSchemaReady(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if err := d.SchemaReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A transaction that waits for a second connection of its own pool can wait indefinitely: in tests the pool refuses it.
func TestPoolRefusesATransactionItsSecondConnection(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := d.Q.DatabaseTime(ctx); !errors.Is(err, db.ErrNested) {
			t.Errorf("a query of the pool: %v", err)
		}
		if err := d.InTx(ctx, func(context.Context, *db.Tx) error { return nil }); !errors.Is(err, db.ErrNested) {
			t.Errorf("a transaction in a transaction: %v", err)
		}
		tx.AfterCommit(func() {
			if _, err := d.Q.DatabaseTime(ctx); err != nil {
				t.Errorf("after the commit: %v", err)
			}
		})
		_, err := tx.Q.DatabaseTime(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A lock that is not to be had in time is waited for again, and a session that stops in the middle of a transaction
// does not keep what it has locked.
func TestSessionsGiveUpLocks(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for setting, want := range map[string]string{
		"idle_in_transaction_session_timeout": "15s",
		"lock_timeout":                        "10s",
		"statement_timeout":                   "2min",
		"plan_cache_mode":                     "force_generic_plan",
	} {
		var got string
		if err := d.Pool.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, want %q: %v", setting, got, want, err)
		}
	}
	tries := 0
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if tries++; tries == 1 {
			return &pgconn.PgError{Code: "55P03"}
		}
		return nil
	})
	if err != nil || tries != 2 {
		t.Errorf("%d tries: %v", tries, err)
	}
	for code, want := range map[string]int{"55P03": 2, "40001": 5, "40P01": 5, "23505": 1} {
		tries = 0
		if err := d.InTx(t.Context(), func(context.Context, *db.Tx) error {
			tries++
			return &pgconn.PgError{Code: code}
		}); err == nil || tries != want {
			t.Errorf("%s: %d tries, want %d: %v", code, tries, want, err)
		}
	}
	// The paused replica: PostgreSQL ends its transaction, and who waits gets the lock.
	if _, err := d.Pool.Exec(t.Context(), "CREATE TABLE wallet (a integer); INSERT INTO wallet VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	paused, err := d.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer paused.Release()
	if _, err := paused.Exec(t.Context(), "SET idle_in_transaction_session_timeout = '100ms'"); err != nil {
		t.Fatal(err)
	}
	if _, err := paused.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if _, err := paused.Exec(t.Context(), "UPDATE wallet SET a = 2"); err != nil {
		t.Fatal(err)
	}
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE wallet SET a = a + 10")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var a int
	if err := d.Pool.QueryRow(t.Context(), "SELECT a FROM wallet").Scan(&a); err != nil || a != 11 {
		t.Errorf("the wallet is %d: %v", a, err)
	}
}
