package db_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/internal/testing/dbtest"
)

// The clock walks over months and years: each month has its partition before it begins, rows go where their id says,
// rules hold on every partition, and what is past its retention goes, unless something in it lives.
func TestMonthlyPartitions(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := d.Pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	refused := func(code, sql string, args ...any) {
		t.Helper()
		_, err := d.Pool.Exec(t.Context(), sql, args...)
		if pe := (*pgconn.PgError)(nil); !errors.As(err, &pe) || pe.Code != code {
			t.Errorf("%s: %v, want %s", sql, err, code)
		}
	}
	text := func(sql string, args ...any) (s string) {
		t.Helper()
		if err := d.Pool.QueryRow(t.Context(), sql, args...).Scan(&s); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return s
	}
	exec("INSERT INTO org (id, name, personal) VALUES (first_id(clock_timestamp()), 'o', false)")
	exec("INSERT INTO host (id, org_id, name, region, state) SELECT id, id, 'h', 'eu', 'active' FROM org")
	// life makes a cluster, its lease, a segment, an event and an act in the month n from now, and returns their id.
	life := func(n int) string {
		t.Helper()
		v := text("SELECT first_id(month_start(clock_timestamp(), $1) + interval '3 days')", n)
		exec(`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node, rate,
			currency) SELECT $1, id, id, $1::uuid::text, '{}', 'i', 'running', 1, 1, 1, 'USD' FROM org`, v)
		exec(`WITH n AS (INSERT INTO node (id, cluster_id, rank, host_id, lease_id, epoch, state, address)
			SELECT $1, $1, 0, id, $1, 1, 'ready', '10.0.0.1' FROM org)
			INSERT INTO lease (id, cluster_id, node_id, rank, host_id, renter_org_id, host_org_id, gpu_count, gpu_model,
			gpu_ids, cpu_cores, ram_mb, disk_gb, currency, host_share_ppm, epoch)
			SELECT $1, $1, $1, 0, id, id, id, 1, 'H100', '{}', 1, 1, 1, 'USD', 850000, 1 FROM org`, v)
		for range 2 { // the second time it is known
			exec(`INSERT INTO usage_segment (lease_id, epoch, boot_id, seq, anchor, boot_end_ms, start_ms, end_ms, energy_mj,
				final, payload_hash, signature) VALUES ($1, 1, 'b', 1, 1, 1, 1, 2, 0, false, '', '')
				ON CONFLICT (lease_id, epoch, boot_id, seq) DO NOTHING`, v)
		}
		exec("INSERT INTO cluster_event (cluster_id, kind, title) VALUES ($1, 'k', 't')", v)
		exec("INSERT INTO audit_event (id, action) VALUES ($1, 'a')", v)
		return v
	}
	end := func(v string, months int) {
		t.Helper()
		exec("UPDATE cluster SET ended_at = month_start(clock_timestamp(), $2) WHERE id = $1", v, months)
		exec("UPDATE lease SET ended_at = month_start(clock_timestamp(), $2), settled_at = month_start(clock_timestamp(), "+
			"$2) WHERE id = $1", v, months)
	}
	keep := func(months int) (made, dropped int) {
		t.Helper()
		err := d.Pool.QueryRow(t.Context(), "SELECT made, dropped FROM keep_month_partitions_at(month_start("+
			"clock_timestamp(), $1) + interval '10 days')", months).Scan(&made, &dropped)
		if err != nil {
			t.Fatal(err)
		}
		return made, dropped
	}
	tables := []string{"usage_segment", "cluster_event", "audit_event"}
	first := life(0)
	var third string
	for n := range 6 {
		if made, dropped := keep(n); n > 0 && made != len(tables) || dropped != 0 {
			t.Fatalf("month %d: %d made, %d dropped", n, made, dropped)
		}
		v := life(n + 2)
		if n == 1 {
			third = v
		}
		for _, table := range tables {
			key := map[string]string{"usage_segment": "lease_id", "cluster_event": "cluster_id", "audit_event": "id"}[table]
			want := text("SELECT to_char(month_start(clock_timestamp(), $1) AT TIME ZONE 'UTC', '\"_\"YYYY\"_\"MM')", n+2)
			if got := text("SELECT tableoid::regclass::text FROM "+table+" WHERE "+key+" = $1", v); got != table+want {
				t.Errorf("month %d: %s of that month is in %s", n+2, table, got)
			}
		}
	}
	if got := text("SELECT count(DISTINCT n) || ' ' || max(n) - min(n) FROM cluster_event"); got != "7 6" {
		t.Errorf("numbers of events: %s", got)
	}

	// History does not change on any partition, new or old, nor through the table; leases are there; keys are unique.
	for _, table := range []string{"usage_segment", "usage_segment_first", "usage_segment_default",
		text("SELECT tableoid::regclass::text FROM usage_segment WHERE lease_id = $1", third)} {
		if table != "usage_segment_default" { // it is empty
			refused("23000", "UPDATE "+table+" SET energy_mj = 1")
			refused("23000", "DELETE FROM "+table)
		}
		refused("23000", "TRUNCATE "+table)
	}
	for _, v := range []string{text("SELECT first_id(clock_timestamp() + interval '1 second')"),
		text("SELECT first_id(month_start(clock_timestamp(), 4))"), "f0000000-0000-4000-8000-000000000000"} {
		refused("23503", `INSERT INTO usage_segment (lease_id, epoch, boot_id, seq, anchor, boot_end_ms, start_ms, end_ms,
			energy_mj, final, payload_hash, signature) VALUES ($1, 1, 'b', 1, 1, 1, 1, 2, 0, false, '', '')`, v)
		refused("23503", "INSERT INTO cluster_event (cluster_id, kind, title) VALUES ($1, 'k', 't')", v)
	}
	refused("23503", "DELETE FROM lease WHERE id = $1", third)
	refused("23505", "INSERT INTO audit_event (id, action) VALUES ($1, 'a')", third)
	refused("23514", `INSERT INTO usage_segment (lease_id, epoch, boot_id, seq, anchor, boot_end_ms, start_ms, end_ms,
		energy_mj, final, payload_hash, signature) VALUES ($1, 2, 'b', 1, 1, 1, 2, 2, 0, false, '', '')`, third)

	count := func(want string) {
		t.Helper()
		got := fmt.Sprint(text(`SELECT (SELECT count(*) FROM usage_segment) || ' ' || (SELECT count(*) FROM cluster_event) || ' ' ||
			(SELECT count(*) FROM audit_event)`))
		if got != want {
			t.Errorf("%s segments, events and acts, want %s", got, want)
		}
	}
	// Events of a cluster that runs for years stay; they go when it has been over for long enough. The first partition
	// holds the two months before the first of its own.
	keep(28)
	count("7 7 7")
	end(first, 1)
	keep(28)
	count("7 6 7")
	keep(40) // each call drops one partition of each table at most

	count("7 6 6")
	end(third, 15)
	keep(140)
	count("6 6 5")

	// A month whose partition is missing is kept in the default partition, and the months after it have their own.
	v := text("SELECT first_id(month_start(clock_timestamp(), 143) + interval '1 hour')")
	exec("INSERT INTO audit_event (id, action) VALUES ($1, 'a')", v)
	if made, _ := keep(142); made != 5 {
		t.Errorf("%d partitions made around the missing one", made)
	}
	if got := text("SELECT tableoid::regclass::text FROM audit_event WHERE id = $1", v); got != "audit_event_default" {
		t.Error(got)
	}
	if got := text("SELECT missing || ' ' || in_default FROM month_partitions_state()"); got != "0 1" {
		t.Errorf("missing and in default: %s", got)
	}
}
