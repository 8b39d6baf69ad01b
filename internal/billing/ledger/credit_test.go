package ledger_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func setCredit(t *testing.T, d *db.DB, org id.Org, n money.Nano) {
	t.Helper()
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO postpaid_org (org_id, currency, state, credit_limit, reason, changed_by) "+
			"VALUES ($1, $2, 'on', 10, 'r', $3) ON CONFLICT DO NOTHING", org, eur, id.New[id.User]()); err != nil {
			return err
		}
		l, err := ledger.Lock(ctx, tx, ledger.Wallet(org, eur))
		if err != nil {
			return err
		}
		return l.SetCredit(ctx, ledger.Wallet(org, eur), n)
	}); err != nil {
		t.Fatal(err)
	}
}

func take(org id.Org, key string, n money.Nano) ledger.Entry {
	return ledger.Entry{Kind: "authorise", Key: key, Transfers: []ledger.Transfer{
		{Debit: ledger.Wallet(org, eur), Credit: ledger.Fee(eur), Amount: n}}}
}

// A wallet with credit falls as far below zero as that, however many take from it at the same time, and not a nano-unit
// further.
func TestCredit_NeverExceeded(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := billingtest.New(t, d).Org()
	setCredit(t, d, org, 7)
	if _, err := post(t, d, topup(org, "topup:pi_1", 3)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if _, err := post(t, d, take(org, fmt.Sprintf("take:%d", i), 1)); err != nil &&
				fault.From(err).Kind != fault.InsufficientFunds {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := billingtest.New(t, d).Balance(ledger.Wallet(org, eur)); got != -7 {
		t.Errorf("the wallet has %d, want -7", got)
	}
	if n, err := ledger.Spendable(t.Context(), d.Q, ledger.Wallet(org, eur)); n != 0 || err != nil {
		t.Error(n, err)
	}
	if below, err := ledger.BelowZero(t.Context(), d.Q, 10); len(below) != 0 || err != nil {
		t.Error("within its credit, and listed:", below, err)
	}
	if _, err := d.Pool.Exec(t.Context(), "UPDATE ledger_balance SET amount = amount - 1 WHERE amount = -7"); err == nil {
		t.Error("the database lets a balance fall below its credit")
	}
	billingtest.New(t, d).MustBalance()
}

// Credit that is lowered below what is used lends nothing, however the balance rises meanwhile, until it is back
// within.
func TestCredit_LoweredLendsNothing(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org := billingtest.New(t, d).Org()
	wallet := ledger.Wallet(org, eur)
	refused := func(key string) {
		t.Helper()
		if _, err := post(t, d, take(org, key, 1)); err == nil || fault.From(err).Kind != fault.InsufficientFunds {
			t.Error(key, err)
		}
	}
	setCredit(t, d, org, 10)
	if _, err := post(t, d, take(org, "a", 9)); err != nil {
		t.Fatal(err)
	}
	setCredit(t, d, org, 4)
	refused("b")
	if below, err := ledger.BelowZero(t.Context(), d.Q, 10); len(below) != 1 || below[0].Balance != -9 || err != nil {
		t.Error(below, err)
	}
	if _, err := post(t, d, topup(org, "topup:pi_1", 3)); err != nil {
		t.Fatal(err)
	}
	refused("c") // it has -6
	if _, err := d.Pool.Exec(t.Context(), "UPDATE ledger_balance SET amount = amount - 1 WHERE amount = -6"); err == nil {
		t.Error("the database lets a balance fall further below its credit")
	}
	if _, err := post(t, d, topup(org, "topup:pi_2", 3)); err != nil {
		t.Fatal(err)
	}
	if n, err := ledger.Spendable(t.Context(), d.Q, wallet); n != 1 || err != nil {
		t.Error(n, err)
	}
	if _, err := post(t, d, take(org, "d", 1)); err != nil {
		t.Error(err)
	}
	refused("e")
	setCredit(t, d, org, 0)
	if _, err := post(t, d, topup(org, "topup:pi_3", 4)); err != nil {
		t.Fatal(err)
	}
	if n := billingtest.New(t, d).Balance(wallet); n != 0 {
		t.Error(n)
	}
	if _, err := post(t, d, take(org, "f", 1)); err == nil {
		t.Error("a wallet without credit falls below zero")
	}
	billingtest.New(t, d).MustBalance()
}
