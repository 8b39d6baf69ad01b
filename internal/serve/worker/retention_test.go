package worker

import (
	"testing"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// Rows whose retention is over are deleted, those that are younger or not done with are kept.
func TestOldRowsAreDeleted(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := d.Pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec("ALTER TABLE operator_earning_hour DISABLE TRIGGER operator_earning_hour_of_transfers")
	exec("INSERT INTO org (id, name, personal) VALUES (first_id(clock_timestamp()), 'o', false)")
	exec("INSERT INTO host (id, org_id, name, region, state) SELECT id, id, 'h', 'eu', 'active' FROM org")
	exec("INSERT INTO gpu (id, host_id, uuid, idx, model, vram_mb) SELECT id, id, 'g', 0, 'H100', 1 FROM org")
	var h id.Host
	var org id.Org
	if err := d.Pool.QueryRow(t.Context(), "SELECT id, org_id FROM host").Scan(&h, &org); err != nil {
		t.Fatal(err)
	}
	fleettest.Lease(t, d, h, org)
	// Each statement takes an age, and whether the row is done with.
	tables := map[string]struct {
		days   int
		insert string
		open   bool // an old row that is not done with is kept
	}{
		"notice": {400, `INSERT INTO notice (id, org_id, dedupe_key, severity, title, mailed_at, created_at)
			SELECT v.id, o.id, v.id::text, 'info', 't', CASE WHEN $2 THEN v.at END, v.at FROM org o, v`, true},
		"stripe_event": {90, `INSERT INTO stripe_event (id, type, object_id, created_at, received_at, processed_at)
			SELECT v.id::text, 't', 'o', v.at, v.at, CASE WHEN $2 THEN v.at END FROM v`, true},
		"quote": {90, `INSERT INTO quote (id, org_id, user_id, spec, placement, gpu_ids, rate, state, expires_at)
			SELECT v.id, o.id, o.id, '{}', '{}', '{}', 1, CASE WHEN $2 THEN 'expired' ELSE 'held' END, v.at FROM org o, v`, true},
		"gpu_claim": {90, `INSERT INTO gpu_claim (id, gpu_id, host_id, kind, ref, ended_at)
			SELECT v.id, o.id, o.id, 'lease', v.id, CASE WHEN $2 THEN v.at END FROM org o, v`, true},
		"segment_quarantine": {400, `INSERT INTO segment_quarantine (host_id, reason, payload, payload_hash, received_at)
			SELECT o.id, 'r', '', v.id::text::bytea, v.at FROM org o, v WHERE $2`, false},
		"deaf_span": {401, `INSERT INTO deaf_span (lease_id, epoch, peer, from_ms, to_ms, received_at)
			SELECT l.id, 1, 1, s.ms, s.ms + 1, v.at FROM lease l, v, extract(epoch FROM v.at) s (ms) WHERE $2`, false},
		"operator_earning_hour": {800, `INSERT INTO operator_earning_hour (host_org_id, currency, payer_org_id, hour, earned,
			last_at, first_id, last_id) SELECT v.id, 'USD', v.id, v.at, 1, v.at, v.id, v.id FROM v WHERE $2`, false},
	}
	for _, x := range tables {
		insert := func(days int, done bool) {
			exec(`WITH v AS (SELECT at, first_id(at) AS id FROM (SELECT clock_timestamp() - interval '1 day' * $1::integer AS at) a) `+
				x.insert, days, done)
		}
		insert(x.days+1, true)
		insert(x.days-2, true)
		if x.open {
			insert(x.days+2, false)
		}
	}
	if did, err := dropOld(t.Context(), d); err != nil || did != len(tables) {
		t.Errorf("%d rows deleted: %v", did, err)
	}
	for table, x := range tables {
		want := 1
		if x.open {
			want = 2
		}
		var n int
		if err := d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != want {
			t.Errorf("%s has %d rows, want %d: %v", table, n, want, err)
		}
	}
	if _, err := d.Pool.Exec(t.Context(), "DELETE FROM deaf_span"); err == nil {
		t.Error("a young report of a peer was deleted")
	}
	if did, err := dropOld(t.Context(), d); err != nil || did != 0 {
		t.Errorf("again: %d rows deleted: %v", did, err)
	}
}
