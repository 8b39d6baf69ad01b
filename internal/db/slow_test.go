package db_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// Statements that take a second or more are logged by name and time, alone and in a batch, without arguments.
func TestSlow_NamesTheStatement(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d, err := db.Open(t.Context(), db.Config{URL: dbtest.NewURL(t), Log: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Pool.Close()
	const sleep = "-- name: Sleep :exec\nSELECT pg_sleep($1), $2::text"
	for seconds, want := range map[float64]string{
		0: "", 1.01: "statement=Sleep took=1.",
	} {
		out.Reset()
		if _, err := d.Pool.Exec(t.Context(), sleep, seconds, "secret"); err != nil {
			t.Fatal(err)
		}
		got := out.String()
		if strings.Contains(got, "secret") || (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%g s: %q", seconds, got)
		}
	}
	out.Reset()
	b := &pgx.Batch{}
	b.Queue(sleep, 0.6, "secret")
	b.Queue(sleep, 0.6, "secret")
	if err := d.Pool.SendBatch(t.Context(), b).Close(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Contains(got, "secret") || !strings.Contains(got, "statement=Sleep") ||
		!strings.Contains(got, "batch=2") {
		t.Errorf("a batch: %q", got)
	}
}
