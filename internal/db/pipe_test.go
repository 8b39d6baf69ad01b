package db_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func TestAPipeRunsInOrder(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, account := id.New[id.Org](), id.New[id.LedgerAccount]()
	names := dbq.FindLedgerAccountsParams{
		Kinds:      []string{"renter_wallet"},
		Owners:     []pgtype.UUID{{Bytes: org.UUID(), Valid: true}},
		Currencies: []string{"EUR"},
	}
	var before, after []dbq.FindLedgerAccountsRow
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		p, inner := tx.Pipe()
		if err := inner.Q.InsertOrg(ctx, org, "o", true); err != nil {
			return err
		}
		one := p.Q.FindLedgerAccounts(ctx, []dbq.FindLedgerAccountsParams{names})
		if _, err := inner.Exec(ctx, "INSERT INTO ledger_account (id, kind, owner, org_id, currency) VALUES ($1, "+
			"'renter_wallet', $2, $2, 'EUR')", account, org); err != nil {
			return err
		}
		two := p.Q.FindLedgerAccounts(ctx, []dbq.FindLedgerAccountsParams{names})
		inner.AfterCommit(func() { before = nil })
		p.Send(ctx)
		one.Query(db.Keep(p, &before))
		two.Query(db.Keep(p, &after))
		if err := p.Close(); err != nil {
			return err
		}
		if len(before) != 0 || len(after) != 1 || after[0].ID != account {
			t.Errorf("before %v, after %v", before, after)
		}
		before = after
		return nil
	})
	if err != nil || before != nil {
		t.Fatalf("%v, after the commit %v", err, before)
	}
}

func TestTogetherSaysWhatWentWrong(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := id.New[id.Org]()
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return tx.Together(ctx, func(ctx context.Context, tx *db.Tx) error {
			for range 3 {
				if err := tx.Q.InsertOrg(ctx, org, "o", true); err != nil {
					t.Error("an error before anything was sent")
				}
			}
			return nil
		})
	})
	if !db.IsUnique(err, "org_pkey") {
		t.Errorf("%v", err)
	}
	boom := errors.New("boom")
	err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return tx.Together(ctx, func(ctx context.Context, tx *db.Tx) error { return boom })
	})
	if !errors.Is(err, boom) {
		t.Errorf("%v", err)
	}
}

func TestAPipeTakesNoReadsThatAreWantedAtOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return tx.Together(ctx, func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Now(ctx)
			if err == nil {
				t.Error("it read")
			}
			if _, err := tx.Q.ListClusterEvents(ctx, id.New[id.Cluster](), 0, 1); err == nil {
				t.Error("it read")
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
	p := db.NewPipe(d.Q)
	if err := p.Q.InsertOrg(t.Context(), id.New[id.Org](), "o", true); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err == nil {
		t.Error("closed, never sent, and nobody noticed")
	}
}
