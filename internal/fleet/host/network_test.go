package host_test

import (
	"context"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// The best of a week counts; after a week the next figure does.
func TestMeasuredNetwork(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	h := []id.Host{fleettest.Enroll(t, d, org, user, 1).Host, fleettest.Enroll(t, d, org, user, 1).Host}
	for _, sql := range []string{
		"INSERT INTO fabric (id, org_id, name, busbw_gbps) SELECT gen_random_uuid(), $1, 'rack', 9",
		"UPDATE host SET fabric_id = (SELECT id FROM fabric) WHERE org_id = $1",
	} {
		if _, err := d.Pool.Exec(t.Context(), sql, org); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	record := func(up, down, busbw float64, at time.Time) {
		t.Helper()
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return host.RecordNetwork(ctx, tx, []host.Line{{
				Host:     h[1],
				UpMbps:   up,
				DownMbps: down,
			}, {Host: h[0], UpMbps: 1, DownMbps: 1}}, busbw, at)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, up, down, busbw float64) {
		t.Helper()
		var gotUp, gotDown, gotBusbw float64
		err := d.Pool.QueryRow(t.Context(), `SELECT s.net_up_mbps, s.net_down_mbps, f.busbw_gbps FROM host_status s
			JOIN host h ON h.id = s.host_id JOIN fabric f ON f.id = h.fabric_id WHERE h.id =
			$1`, h[1]).Scan(&gotUp, &gotDown, &gotBusbw)
		if err != nil || gotUp != up || gotDown != down || gotBusbw != busbw {
			t.Errorf("%s: up %v, down %v, busbw %v (%v); want %v, %v, %v", when, gotUp, gotDown, gotBusbw, err, up, down, busbw)
		}
	}
	record(900, 400, 3, now)
	check("first", 900, 400, 3)
	record(100, 500, 2, now.Add(time.Hour))
	check("slower up, quicker down", 900, 500, 3)
	record(100, 50, 1, now.Add(8*24*time.Hour))
	check("a week later", 100, 50, 1)
}
