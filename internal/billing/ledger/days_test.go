package ledger_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/billing/billproof"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// asOwner changes history as the owner of the tables can.
func asOwner(t *testing.T, d *db.DB, sql string, args ...any) {
	t.Helper()
	c, err := d.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	for _, q := range []string{"SET session_replication_role = replica", "", "SET session_replication_role = origin"} {
		if q == "" {
			_, err = c.Exec(t.Context(), sql, args...)
		} else {
			_, err = c.Exec(t.Context(), q)
		}
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

func link(t *testing.T, d *db.DB) {
	t.Helper()
	if _, err := ledger.Link(t.Context(), d, 0); err != nil {
		t.Fatal(err)
	}
}

// rehash makes the chain again over batches whose times were changed.
func rehash(t *testing.T, d *db.DB) {
	t.Helper()
	rows, err := d.Q.LedgerBatches(t.Context(), 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	prev := make([]byte, 32)
	for _, r := range rows {
		b := billproof.Batch{N: r.N, MadeAt: r.MadeAt.UTC(), Txs: int(r.Txs), Root: r.Root, Prev: prev}
		asOwner(t, d, "UPDATE ledger_batch SET prev = $1, hash = $2 WHERE n = $3", prev, b.Sum(), r.N)
		prev = b.Sum()
	}
}

// A closed day's totals stand in for its entries: the check reads the others, and finds the same as one that reads all
// of them. What is changed in a closed day is found when its turn comes, and reported until it is put right.
func TestClosedDays_MatchTheirEntries(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	a, b := billingtest.New(t, d).Org(), billingtest.New(t, d).Org()
	pay := func(n int) {
		t.Helper()
		for i := range n {
			key := fmt.Sprintf("topup:%d:%d", n, i)
			if _, err := post(t, d, topup(a, key, money.Unit)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Books of three days: two that are over, and what came since, a part of it not in the chain.
	day := func(days int) {
		t.Helper()
		link(t, d)
		asOwner(t, d, "UPDATE ledger_batch SET made_at = made_at - interval '1 day' * $1 WHERE made_at > "+
			"clock_timestamp() - interval '1 hour'", days)
	}
	pay(3)
	day(3)
	pay(4)
	if _, err := post(t, d, topup(b, "topup:b", 7*money.Unit)); err != nil {
		t.Fatal(err)
	}
	day(2)
	// made_at is in a batch's hash: the chain is made again over what the owner changed above.
	rehash(t, d)
	if n, err := ledger.CloseDays(t.Context(), d); err != nil || n != 2 {
		t.Fatalf("%d days closed: %v", n, err)
	}
	if n, err := ledger.CloseDays(t.Context(), d); err != nil || n != 0 {
		t.Fatalf("%d days closed again: %v", n, err)
	}
	pay(5)
	link(t, d)
	pay(2)
	same := func() ledger.TrialBalance {
		t.Helper()
		x, err := ledger.Check(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		all, err := ledger.CheckAll(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(x.Totals), fmt.Sprint(all.Totals); got != want {
			t.Errorf("totals %s, all entries add up to %s", got, want)
		}
		return x
	}
	if x := same(); !x.Balanced() {
		t.Fatal(x.Problems)
	}
	check := func(want string) {
		t.Helper()
		for range 2 { // both days
			asOwner(t, d, "UPDATE ledger_day SET checked_at = checked_at - interval '2 days'")
			if n, err := ledger.CheckDay(t.Context(), d); n != 1 || err != nil && want == "" {
				t.Fatalf("%d days checked: %v", n, err)
			}
		}
		x, err := ledger.Check(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(x.Problems, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("problems %q, want %q", got, want)
		}
	}
	check("")

	// A balance that is not what its entries add up to is found at once, whether the account moved lately or not.
	for _, org := range []string{a.UUID().String(), b.UUID().String()} {
		const add = "UPDATE ledger_balance SET amount = amount + $1 WHERE account_id = (SELECT id FROM ledger_account " +
			"WHERE owner = $2::uuid AND kind = 'renter_wallet')"
		asOwner(t, d, add, 1, org)
		check("transfers add up to")
		asOwner(t, d, add, -1, org)
		check("")
	}
	// Entries of a closed day: their amounts, their words, their number, and the totals themselves.
	const one = "(SELECT id FROM ledger_tx WHERE key = 'topup:3:1')"
	for _, c := range []struct{ change, back, want string }{
		{"UPDATE ledger_transfer SET amount = amount + 1 WHERE tx_id = " + one,
			"UPDATE ledger_transfer SET amount = amount - 1 WHERE tx_id = " + one, "its hash is not that of its entries"},
		{"UPDATE ledger_tx SET memo = 'x' WHERE id = " + one, "UPDATE ledger_tx SET memo = '' WHERE id = " + one,
			"its hash is not that of its entries"},
		{"UPDATE ledger_day_account SET change = change + 1, after = after + 1 WHERE day = 1",
			"UPDATE ledger_day_account SET change = change - 1, after = after - 1 WHERE day = 1",
			"2 accounts moved an amount other than their total"},
		{"UPDATE ledger_day_kind SET change = change + 1 WHERE day = 2",
			"UPDATE ledger_day_kind SET change = change - 1 WHERE day = 2", "2 kinds of accounts moved an amount other"},
	} {
		asOwner(t, d, c.change)
		check(c.want)
		asOwner(t, d, c.back)
		check("")
	}
	for _, sql := range []string{"UPDATE ledger_day SET txs = 0", "DELETE FROM ledger_day", "TRUNCATE ledger_day CASCADE",
		"UPDATE ledger_day_account SET after = 0", "DELETE FROM ledger_day_kind"} {
		if _, err := d.Pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s: done", sql)
		}
	}
	if x := same(); !x.Balanced() {
		t.Error(x.Problems)
	}
}
