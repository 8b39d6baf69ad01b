package cluster_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

var errNotKept = errors.New("only asked")

// What a pass of the watchdog costs while nothing happens does not depend on how many clusters run.
func TestACalmClusterCostsNoTransactionOfItsOwn(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	w := newWorld(t, worldConfig{hosts: 6, gpus: 1, db: d, funds: 100_000 * money.Unit})
	var all []cluster.Cluster
	pass := func() (statements int64) {
		t.Helper()
		for _, c := range all {
			w.rounds(c, "running", in(lifecycle.Running))
		}
		w.exec("UPDATE cluster SET due_at = clock_timestamp()")
		const many = 1 << 40
		k.Left.Store(many)
		r, err := w.clusters[0].Watchdog.Pass(w.ctx)
		statements = many - k.Left.Swap(0)
		if err != nil || r.Calm != len(all) || r.Looked != 0 || r.Failed != 0 {
			t.Fatalf("%d clusters: %+v, %v", len(all), r, err)
		}
		return statements
	}
	more := func(n, nodes int) {
		for range n {
			c := w.runUp(spec(nodes, 1))
			w.tick(c)
			all = append(all, c)
		}
	}
	more(1, 1)
	one := pass()
	more(3, 1)
	more(1, 2)
	if five := pass(); five != one || one > 12 {
		t.Fatalf("%d statements for one cluster, %d for five", one, five)
	}
	_, before := w.openWindow(all[0])
	w.rounds(all[0], "running", in(lifecycle.Running))
	pass()
	if open, after := w.openWindow(all[0]); !open || after <= before {
		t.Fatalf("confirmed until %d, then %d: a calm cluster's time is confirmed", before, after)
	}
	w.ledger()
}

// Whatever asks for attention ends the calm at once.
func TestWhatAsksForAttentionEndsTheCalm(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1, funds: 100_000 * money.Unit})
	c := w.runUp(spec(2, 1))
	w.tick(c)
	w.rounds(c, "running", in(lifecycle.Running))
	ids := []pgtype.UUID{{Bytes: c.ID.UUID(), Valid: true}}
	calm := func(change string) (calm bool) {
		t.Helper()
		err := w.d.InTx(w.ctx, func(ctx context.Context, tx *db.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE cluster SET due_at = clock_timestamp()"); err != nil {
				return err
			}
			if change != "" {
				if r, err := tx.Exec(ctx, change); err != nil || r.RowsAffected() == 0 {
					t.Errorf("%s: %v %v", change, r, err)
				}
			}
			quiet, err := tx.Q.LockQuietClusters(ctx, 1800, 30, 10)
			if err != nil {
				return err
			}
			rows, err := tx.Q.KeepCalm(ctx, dbq.KeepCalmParams{Ids: ids, LostS: 35, StepS: 1800, LookS: 30, PostMs: 1_200_000})
			if err != nil {
				return err
			}
			calm = len(quiet) == 1 && len(rows) == 1
			return errNotKept
		})
		if !errors.Is(err, errNotKept) {
			t.Fatal(err)
		}
		return calm
	}
	if !calm("") {
		t.Fatal("the cluster is not calm")
	}
	for _, change := range []string{
		"UPDATE cluster SET full_look_at = clock_timestamp() - interval '1 second'",
		"UPDATE cluster SET state = 'degraded'",
		"UPDATE cluster SET reason = 'host_lost'",
		"UPDATE cluster SET money_reason = 'funds_exhausted'",
		"UPDATE cluster SET runway_told_s = 600",
		"UPDATE cluster SET run_until = clock_timestamp() + interval '29 minutes'",
		"UPDATE cluster SET replace_until = clock_timestamp()",
		"UPDATE cluster SET max_duration_s = 10",
		"UPDATE lease SET run_until = clock_timestamp() + interval '29 minutes' WHERE rank = 1",
		"UPDATE lease SET ended_at = clock_timestamp() WHERE rank = 1",
		"UPDATE lease SET required = false WHERE rank = 1",
		"UPDATE lease_meter SET frozen = true WHERE lease_id = (SELECT id FROM lease WHERE rank = 1)",
		"UPDATE lease_meter SET unposted_since_ms = (extract(epoch FROM clock_timestamp()) - 1300) * 1000",
		"UPDATE node SET state = 'lost' WHERE rank = 1",
		"UPDATE node SET exit_code = 0, exit_at = clock_timestamp() WHERE rank = 1",
		"UPDATE node SET epoch = epoch + 1 WHERE rank = 0",
		"UPDATE node_status SET good = false",
		"UPDATE node_status SET trouble = 'gpu_fault' WHERE node_id = (SELECT id FROM node WHERE rank = 1)",
		"UPDATE node_status SET peers_down = '{0}' WHERE node_id = (SELECT id FROM node WHERE rank = 1)",
		"UPDATE node_status SET reported_at = reported_at - interval '36 seconds'",
		"UPDATE node_status SET last_good_ms = last_good_ms - 36000 WHERE node_id = (SELECT id FROM node WHERE rank = 0)",
		"UPDATE host SET reclaim_at = clock_timestamp() + interval '1 day', reclaim_asked_at = clock_timestamp()",
		"UPDATE host SET capped_until = clock_timestamp() + interval '1 day'",
		"UPDATE cluster_window SET doubt_from_ms = opened_ms",
		"UPDATE cluster_window SET closed_ms = confirmed_until_ms",
		"INSERT INTO cluster_window (cluster_id, n, opened_ms, confirmed_until_ms, limit_ms) SELECT cluster_id, 9, " +
			"opened_ms, opened_ms, opened_ms + 1 FROM cluster_window",
		"INSERT INTO rank_gap (lease_id, epoch, from_ms, to_ms) SELECT l.id, 1, w.confirmed_until_ms, " +
			"w.confirmed_until_ms + 5 FROM lease l, cluster_window w WHERE l.rank = 1",
		"INSERT INTO undecided_span (cluster_id, epoch, low, high, from_ms) SELECT id, 1, 0, 1, 1 FROM cluster",
		"UPDATE ledger_balance SET reserved = amount - 90000000000, floor = amount - 90000000000 WHERE account_id = " +
			"(SELECT a.id FROM ledger_account a JOIN cluster c ON c.org_id = a.owner WHERE a.kind = 'renter_wallet')",
	} {
		if calm(change) {
			t.Errorf("calm after %s", change)
		}
	}
	if !calm("") {
		t.Fatal("the cluster is no longer calm")
	}
}
