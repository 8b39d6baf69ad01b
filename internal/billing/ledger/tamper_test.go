package ledger_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// closedDay is a ledger with one closed day, of two organisations and a cluster.
func closedDay(t *testing.T, d *db.DB) (renter, operator id.Org) {
	t.Helper()
	w := billingtest.New(t, d)
	renter, operator = w.Org(), w.Org()
	cl := id.New[id.Cluster]()
	hold := ledger.Hold(renter, cl, eur)
	for _, e := range []ledger.Entry{
		topup(renter, "topup:1", 10*money.Unit), topup(operator, "topup:2", 10*money.Unit),
		{Kind: "authorise", Key: "authorise:1", Ref: cl.String(), Transfers: []ledger.Transfer{
			{Debit: ledger.Wallet(renter, eur), Credit: hold, Amount: 5 * money.Unit}}},
		{Kind: "usage", Key: "usage:ls_x:1000000000", Ref: cl.String(), Memo: "m", Transfers: []ledger.Transfer{
			{Debit: hold, Credit: ledger.HostPending(operator, eur), Amount: 850_000_000},
			{Debit: hold, Credit: ledger.Fee(eur), Amount: 150_000_000}}},
	} {
		if _, err := post(t, d, e); err != nil {
			t.Fatal(err)
		}
	}
	endDay(t, d)
	return renter, operator
}

// endDay moves what was booked to three days ago and closes that day.
func endDay(t *testing.T, d *db.DB) {
	t.Helper()
	link(t, d)
	asOwner(t, d, "UPDATE ledger_batch SET made_at = made_at - interval '3 days'")
	rehash(t, d)
	if n, err := ledger.CloseDays(t.Context(), d); err != nil || n != 1 {
		t.Fatalf("%d days closed: %v", n, err)
	}
}

// The owner of the tables can change any column of the ledger, because triggers do not bind it. A constraint refuses
// the change, or a check finds it.
func TestTampering_EveryColumnIsRefusedOrFound(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	closedDay(t, d)
	found := func() bool {
		x, err := ledger.Check(t.Context(), d)
		if err != nil || !x.Balanced() {
			return true
		}
		asOwner(t, d, "UPDATE ledger_day SET checked_at = checked_at - interval '2 days'")
		_, err = ledger.CheckDay(t.Context(), d)
		return err != nil
	}
	if found() {
		t.Fatal("a sound ledger has a problem")
	}
	conn := owner(t, d)
	run := func(sql string) error { _, err := conn.Exec(t.Context(), sql); return err }
	rows, err := conn.Query(t.Context(), `SELECT c.table_name, c.column_name, c.data_type FROM information_schema.columns c
		JOIN information_schema.tables t USING (table_schema, table_name)
		WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE' AND c.table_name LIKE 'ledger\_%'
		  AND c.table_name NOT IN ('ledger_unlinked', 'ledger_proposal') ORDER BY 1, 2`)
	if err != nil {
		t.Fatal(err)
	}
	var columns [][3]string
	for rows.Next() {
		var c [3]string
		if err := rows.Scan(&c[0], &c[1], &c[2]); err != nil {
			t.Fatal(err)
		}
		columns = append(columns, c)
	}
	if len(columns) < 60 {
		t.Fatalf("only %d columns", len(columns))
	}
	// These contain nothing about money: when a day was checked (a time in the future is found), and how the transfers of
	// the last transaction moved a balance.
	harmless := map[string]bool{"ledger_day.checked_at": true, "ledger_balance.moved": true,
		"ledger_balance.moved_in": true}
	for _, c := range columns {
		table, name := c[0], c[1]
		change := map[string]string{
			"text": name + " || 'x'", "bigint": name + " + 1", "integer": name + " + 1", "numeric": name + " + 1",
			"timestamp with time zone": name + " + interval '1 second'", "uuid": "gen_random_uuid()",
			"bytea": "set_byte(" + name + ", 0, 255 - get_byte(" + name + ", 0))",
			"jsonb": "jsonb_set(" + name + ", '{renter_wallet}', '1')", "xid8": "'1'",
		}[c[2]]
		if change == "" {
			t.Fatalf("%s.%s: a column of type %s is not tampered with", table, name, c[2])
		}
		if err := run("DROP TABLE IF EXISTS saved; CREATE TABLE saved AS SELECT * FROM " + table); err != nil {
			t.Fatal(err)
		}
		done, err := conn.Exec(t.Context(), fmt.Sprintf(`UPDATE %s SET %s = %s WHERE ctid =
			(SELECT ctid FROM %s WHERE %s IS NOT NULL ORDER BY ctid LIMIT 1)`, table, name, change, table, name))
		if err == nil && done.RowsAffected() > 0 && !harmless[table+"."+name] && !found() {
			t.Errorf("%s.%s was changed, and no check finds it", table, name)
		}
		overriding := ""
		if table == "ledger_line" {
			overriding = " OVERRIDING SYSTEM VALUE"
		}
		if err := run(fmt.Sprintf("DELETE FROM %s; INSERT INTO %s%s SELECT * FROM saved", table, table,
			overriding)); err != nil {
			t.Fatal(err)
		}
		asOwner(t, d, "UPDATE ledger_day SET problem = ''")
	}
	if found() {
		t.Fatal("the ledger is as it was, and has a problem")
	}
	for _, c := range []struct{ what, change, undo string }{
		{"a balance that is gone", "CREATE TABLE gone AS SELECT * FROM ledger_balance; DELETE FROM ledger_balance WHERE " +
			"amount = 10000000000",
			"INSERT INTO ledger_balance SELECT * FROM gone ON CONFLICT DO NOTHING"},
		{"credit that no terms lend", "UPDATE ledger_balance SET credit = 5, floor = -5 WHERE amount = 10000000000",
			"UPDATE ledger_balance SET credit = 0, floor = 0 WHERE credit = 5"},
		{"a reserve that no dispute claims", "UPDATE ledger_balance SET reserved = 5, floor = 5 WHERE amount = 10000000000",
			"UPDATE ledger_balance SET reserved = 0, floor = 0 WHERE reserved = 5"},
		{"a wallet without a floor", "UPDATE ledger_balance SET floor = NULL WHERE amount = 10000000000",
			"UPDATE ledger_balance SET floor = 0 WHERE amount = 10000000000"},
		{"a day that is checked in the future", "UPDATE ledger_day SET checked_at = clock_timestamp() + interval '1 year'",
			"UPDATE ledger_day SET checked_at = clock_timestamp()"},
		{"a line that is gone", "CREATE TABLE line AS SELECT * FROM ledger_line; DELETE FROM ledger_line WHERE n = 1",
			"INSERT INTO ledger_line OVERRIDING SYSTEM VALUE SELECT * FROM line ON CONFLICT DO NOTHING"},
	} {
		if err := run(c.change); err != nil {
			t.Fatal(c.what, err)
		}
		if !found() {
			t.Errorf("%s is not found", c.what)
		}
		if err := run(c.undo); err != nil {
			t.Fatal(c.what, err)
		}
		asOwner(t, d, "UPDATE ledger_day SET problem = ''")
	}
	if found() {
		t.Error("the ledger is as it was, and has a problem")
	}
}

// owner is a connection whose statements fire no triggers.
func owner(t *testing.T, d *db.DB) *pgxpool.Conn {
	t.Helper()
	c, err := d.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Release)
	if _, err := c.Exec(t.Context(), "SET session_replication_role = replica"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Exec(t.Context(), "SET session_replication_role = origin") })
	return c
}

// The database itself refuses what no version of the server does.
func TestDatabase_RefusesWrongBooks(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	w := billingtest.New(t, d)
	a, b := w.Org(), w.Org()
	w.Move(ledger.StripeClearing(eur), ledger.Wallet(a, eur), 10*money.Unit)
	w.Move(ledger.StripeClearing(eur), ledger.Wallet(b, eur), 10*money.Unit)
	of := func(o id.Org) string {
		return "(SELECT id FROM ledger_account WHERE kind = 'renter_wallet' AND owner = '" + o.UUID().String() + "')"
	}
	tx := id.New[id.LedgerTx]().UUID().String()
	transfer := func(entry string) string {
		return "INSERT INTO ledger_transfer (id, tx_id, debit_account_id, credit_account_id, currency, amount) SELECT " +
			"gen_random_uuid(), " + entry + ", " + of(a) + ", " + of(b) + ", 'EUR', 1"
	}
	for what, sql := range map[string]string{
		"an entry without transfers":    "INSERT INTO ledger_tx (id, kind, key) VALUES (gen_random_uuid(), 'topup', 'e')",
		"a transfer of an old entry":    transfer("(SELECT id FROM ledger_tx LIMIT 1)"),
		"a balance without a transfer":  "UPDATE ledger_balance SET amount = amount + 1 WHERE account_id = " + of(a),
		"a balance and its floor":       "UPDATE ledger_balance SET amount = 0, floor = 0 WHERE account_id = " + of(a),
		"a wallet without a floor":      "UPDATE ledger_balance SET floor = NULL",
		"a floor below zero":            "UPDATE ledger_balance SET floor = -1",
		"credit that no terms lend":     "UPDATE ledger_balance SET credit = 5, floor = -5",
		"a reserve that nothing claims": "UPDATE ledger_balance SET reserved = 5, floor = 5",
		"a balance removed":             "DELETE FROM ledger_balance",
		"an account removed":            "DELETE FROM ledger_account",
		"balances emptied":              "TRUNCATE ledger_balance",
		"an account of another org": "UPDATE ledger_account SET org_id = '" + a.UUID().String() + "' WHERE id = " +
			of(b),
		"an account of another kind": "UPDATE ledger_account SET kind = 'host_bond' WHERE id = " + of(b),
		"earnings without a transfer": "INSERT INTO operator_earning (host_org_id, currency, payer_org_id, earned, " +
			"returned, last_at) VALUES ('" + a.UUID().String() + "', 'EUR', '" + b.UUID().String() + "', 5, 0, now())",
		"an hour's earnings without a transfer": "INSERT INTO operator_earning_hour (host_org_id, currency, payer_org_id, " +
			"hour, earned, last_at, first_id, last_id) VALUES ('" + a.UUID().String() + "', 'EUR', '" + b.UUID().String() +
			"', now(), 5, now(), '" + tx + "', '" + tx + "')",
		"storage charged beyond its meter": "WITH d AS (INSERT INTO data_domain (id, org_id, key_sealed) VALUES " +
			"(gen_random_uuid(), '" + a.UUID().String() + "', '\\x00') RETURNING id) INSERT INTO data_meter " +
			"(domain_id, through_at, numerator, posted) SELECT id, now(), 3599999999999999999, 1 FROM d",
		"money from nowhere": "INSERT INTO ledger_balance (account_id, amount) SELECT id, 5 FROM ledger_account WHERE " +
			"kind = 'stripe_clearing'",
	} {
		if _, err := d.Pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s was accepted", what)
		}
	}
	// The version before moves the balances itself, after the transfers: that changes nothing, and not more than once.
	conn, err := d.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	move := "UPDATE ledger_balance SET amount = amount + CASE WHEN account_id = " + of(a) + " THEN -1 ELSE 1 END " +
		"WHERE account_id IN (" + of(a) + ", " + of(b) + ");"
	before := "BEGIN; INSERT INTO ledger_tx (id, kind, key) VALUES ('" + tx + "', 'topup', 'old'); " +
		transfer("'"+tx+"'") + ";" + move
	if _, err := conn.Conn().PgConn().Exec(t.Context(), before+move+"COMMIT").ReadAll(); err == nil {
		t.Error("a balance was moved twice")
	}
	if _, err := conn.Conn().PgConn().Exec(t.Context(), "ROLLBACK; "+before+"COMMIT").ReadAll(); err != nil {
		t.Error(err)
	}
	if x := w.Balance(ledger.Wallet(a, eur)); x != 10*money.Unit-1 {
		t.Errorf("the wallet has %s", x)
	}
	w.MustBalance()
	if x, err := ledger.CheckAll(t.Context(), d); err != nil || !x.Balanced() {
		t.Error(strings.Join(x.Problems, "\n"), err)
	}
}
