package db_test

import (
	"context"
	"errors"
	"testing"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/dbtest"
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

// A transaction that waits for a second connection of its own pool can wait for ever: in tests the pool refuses it.
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
