package db_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func insertOrg(org id.Org) *pgx.Batch {
	b := &pgx.Batch{}
	queueOrg(b, org)
	return b
}

func queueOrg(b *pgx.Batch, org id.Org) {
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error { return q.InsertOrg(ctx, org, "o", true) })
}

// Statements run in the order in which they were queued, and each answer is that of its statement, whatever is read of
// it.
func TestBatch_AnswersBelongToTheirStatements(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := id.New[id.Org]()
	var first, second, third time.Time
	var exists, missing bool
	b := &pgx.Batch{}
	has := func(into *bool) {
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
			_, err := q.OrgName(ctx, org)
			*into = err == nil
			if db.NoRows(err) {
				err = nil
			}
			return err
		})
	}
	db.ReadNow(b, &first)
	has(&missing)
	db.ReadNow(b, &second)
	queueOrg(b, org)
	has(&exists)
	db.ReadNow(b, &third)
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error { return tx.Send(ctx, b) })
	if err != nil {
		t.Fatal(err)
	}
	if missing || !exists {
		t.Errorf("the org is there before it is inserted: %t, after: %t", missing, exists)
	}
	if !first.Before(second) || !second.Before(third) {
		t.Errorf("clocks out of order: %v %v %v", first, second, third)
	}
}

// The first failure is the batch's error, and no function after it sees its answer.
func TestBatch_FirstErrorEndsIt(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		queue func(b *pgx.Batch)
		is    func(error) bool
	}{
		"a statement": {
			func(b *pgx.Batch) { org := id.New[id.Org](); queueOrg(b, org); queueOrg(b, org) },
			func(err error) bool { return db.IsUnique(err, "org_pkey") },
		},
		"a function": {
			func(b *pgx.Batch) {
				db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
					if err := q.InsertOrg(ctx, id.New[id.Org](), "o", true); err != nil {
						return err
					}
					return boom
				})
			},
			func(err error) bool { return errors.Is(err, boom) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var now time.Time
			b := &pgx.Batch{}
			c.queue(b)
			db.ReadNow(b, &now)
			err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error { return tx.Send(ctx, b) })
			if !c.is(err) {
				t.Errorf("%v", err)
			}
			if !now.IsZero() {
				t.Error("an answer after the failure was read")
			}
		})
	}
}

// A function that hides that its statement was only queued, or makes none or two, is a mistake of the program.
func TestQueue_PanicsOnMisuse(t *testing.T) {
	t.Parallel()
	org := id.New[id.Org]()
	for name, f := range map[string]func(ctx context.Context, q *dbq.Queries) error{
		"no statement": func(context.Context, *dbq.Queries) error { return nil },
		"no error": func(ctx context.Context, q *dbq.Queries) error {
			_ = q.InsertOrg(ctx, org, "o", true)
			return nil
		},
		"two": func(ctx context.Context, q *dbq.Queries) error {
			return errors.Join(q.InsertOrg(ctx, org, "o", true), q.InsertOrg(ctx, org, "o", true))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			db.Queue(&pgx.Batch{}, f)
		})
	}
}

// A batch can be sent on the pool; an empty one is not sent.
func TestSend_OnThePool(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	if err := db.Send(t.Context(), d.Q, &pgx.Batch{}); err != nil {
		t.Error(err)
	}
	if err := db.Send(t.Context(), d.Q, insertOrg(id.New[id.Org]())); err != nil || orgs(t, d) != 1 {
		t.Errorf("%v, %d orgs", err, orgs(t, d))
	}
}
