package db

import (
	"context"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

func TestLatestIsNumbered(t *testing.T) {
	t.Parallel()
	v, err := latest()
	if err != nil || v < 7 {
		t.Fatalf("latest = %d, %v", v, err)
	}
}

// A migration that waits for a table lets those go first who came after it, and tries again.
func TestAMigrationGivesWayAndComesBack(t *testing.T) {
	t.Parallel()
	base := os.Getenv("MUSTER_TEST_POSTGRES")
	admin, err := pgx.Connect(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	name := "mt_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := admin.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c, err := pgx.Connect(context.Background(), base)
		if err == nil {
			_, err = c.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
			_ = c.Close(context.Background())
		}
		if err != nil {
			t.Error(err)
		}
	})
	cfg, err := pgx.ParseConfig(base)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Database = name
	holder, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close(context.Background())
	for _, sql := range []string{"CREATE TABLE busy (a integer)", "BEGIN", "LOCK TABLE busy"} {
		if _, err := holder.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	files := fstest.MapFS{"00001_busy.sql": {Data: []byte("-- +goose Up\nALTER TABLE busy ADD COLUMN b integer;\n")}}
	done := make(chan error, 1)
	go func() {
		done <- migrate(t.Context(), u.String(), files, migrationWaits{"20ms", time.Millisecond, time.Minute})
	}()
	for { // it has been rolled back for want of the lock
		var n int
		err := admin.QueryRow(t.Context(), "SELECT xact_rollback FROM pg_stat_database WHERE datname = $1", name).Scan(&n)
		if err != nil || n >= 2 {
			break
		}
		select {
		case err := <-done:
			t.Fatalf("ended while the table was locked: %v", err)
		default:
		}
	}
	if _, err := holder.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
