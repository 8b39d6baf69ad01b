package metering

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// asServer returns a database whose connections have the role that deploy/roles.sql makes, and one of its owner's.
func asServer(t *testing.T) (server, owner *db.DB) {
	t.Helper()
	url := dbtest.NewURL(t)
	open := func(role string) *db.DB {
		cfg, err := pgxpool.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "SET ROLE "+role)
			return err
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return db.New(pool)
	}
	script, err := os.ReadFile("../../../deploy/roles.sql")
	if err != nil {
		t.Fatal(err)
	}
	owner = open("NONE")
	for range 2 { // it may be run again
		if _, err := owner.Pool.Exec(t.Context(), string(script)); err != nil {
			t.Fatal(err)
		}
	}
	return open("muster_server"), owner
}

// The server's own role meters, posts, gives back and settles, and has no right to rewrite what it wrote, with or
// without triggers.
func TestRoles_ServerCannotRewriteHistory(t *testing.T) {
	t.Parallel()
	server, owner := asServer(t)
	w, t0 := open(t, server, 3_600_000)
	w.ingest(w.segment(w.leases[0], 1, t0, t0+60_000, false), w.segment(w.leases[0], 2, t0+60_000, t0+90_000, true))
	w.settle()
	if _, err := ledger.Link(t.Context(), server, 0); err != nil {
		t.Fatal(err)
	}
	if b, err := ledger.Check(t.Context(), server); err != nil || !b.Balanced() {
		t.Fatal(b.Problems, err)
	}
	if err := server.SchemaReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"UPDATE ledger_tx SET memo = 'x'", "DELETE FROM ledger_tx", "UPDATE ledger_transfer SET amount = 1",
		"DELETE FROM ledger_transfer",
		"UPDATE ledger_batch SET txs = 0", "DELETE FROM ledger_link", "UPDATE ledger_line SET change = '{}'",
		"UPDATE usage_segment SET end_ms = 0", "DELETE FROM usage_segment", "DELETE FROM time_anchor",
		"UPDATE time_anchor SET server_ms = 0",
		"DELETE FROM cluster_window", "DELETE FROM lease_price", "TRUNCATE ledger_tx CASCADE", "TRUNCATE usage_segment",
		"TRUNCATE notice",
		"ALTER TABLE ledger_tx DISABLE TRIGGER ALL", "DROP TABLE ledger_tx", "CREATE TABLE mine (a int)",
		"SET session_replication_role = replica",
		"DELETE FROM goose_db_version",
		"DELETE FROM usage_segment_first", "TRUNCATE usage_segment_default", "DROP TABLE usage_segment_first",
		"SELECT keep_month_partitions_at(clock_timestamp() + interval '100 years')",
	} {
		_, err := server.Pool.Exec(t.Context(), sql)
		if pe := (*pgconn.PgError)(nil); !errors.As(err, &pe) || pe.Code != "42501" {
			t.Errorf("%s: %v; want: permission denied", sql, err)
		}
	}
	// Partitions are made and dropped by rules that the owner of the tables wrote.
	for table, prefix := range map[string]string{"audit_event": "audit_event_", "telemetry": "telemetry_"} {
		if _, err := owner.Pool.Exec(t.Context(), `DO $$ DECLARE p text; BEGIN
			SELECT max(c.relname) INTO p FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
			WHERE i.inhparent = '`+table+`'::regclass AND c.relname ~ '^`+prefix+`[0-9_]+$';
			IF p IS NOT NULL THEN EXECUTE 'DROP TABLE ' || p; END IF; END $$`); err != nil {
			t.Fatal(err)
		}
	}
	if made, _, err := server.KeepPartitions(t.Context()); err != nil || made != 1 {
		t.Errorf("%d monthly partitions made: %v", made, err)
	}
	if _, err := server.Pool.Exec(t.Context(), "SELECT keep_telemetry_partitions('30 days')"); err != nil {
		t.Error(err)
	}
	// A table that a later migration makes can be used before roles.sql runs again.
	if _, err := owner.Pool.Exec(t.Context(), "CREATE TABLE later (a int)"); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Pool.Exec(t.Context(), "INSERT INTO later VALUES (1)"); err != nil {
		t.Error(err)
	}
}
