package db_test

import (
	"context"
	"testing"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func TestExplain_NULIsInvalid(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		var s string
		return tx.QueryRow(ctx, "SELECT $1::text", "a\x00b").Scan(&s)
	})
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("InTx: %v, want %s", err, fault.Invalid)
	}
}

func TestExplain_ServerAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	d, err := db.Open(t.Context(), db.Config{URL: server.NewURL(), MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)

	middle := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.Now(ctx); err != nil {
			t.Fatal(err)
		}
		server.Kill()
		_, err := tx.Now(ctx)
		return err
	})
	for name, err := range map[string]error{
		"in a transaction": middle,
		"to begin one": d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Now(ctx)
			return err
		}),
		"outside":    func() error { _, err := d.Q.DatabaseTime(t.Context()); return err }(),
		"a snapshot": d.InSnapshot(t.Context(), func(context.Context, *dbq.Queries) error { return nil }),
	} {
		f := fault.From(err)
		if f == nil || f.Kind != fault.Unavailable || f.RetryAfter <= 0 {
			t.Errorf("%s: %v, want %s with a time to retry", name, err, fault.Unavailable)
		}
	}

	server.Start()
	if _, err := d.Q.DatabaseTime(t.Context()); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

// TestExplain_NoConnectionIsUnavailable holds the only connection of a pool: a caller that waits for one gets a
// failure to retry.
func TestExplain_NoConnectionIsUnavailable(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), db.Config{URL: dbtest.NewURL(t), MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	held, err := d.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return nil })
	if !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v, want %s", err, fault.Unavailable)
	}
}
