package metering

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/money"
)

// From the hold over segments to the settlement: every nano-unit is where the rules put it.
func TestSettle_ChargesProvenWindows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 100*money.Unit, 25_920_000, 7_777_777)
	batches, finish := story(w)
	held := w.money().Hold
	mustEqual(t, "held for an hour", held, money.CostOf(25_920_000, 3_600_000)+money.CostOf(7_777_777, 3_600_000))
	w.ingest(batches[0]...)
	// Confirmed so far: 1,200.123 s of window, of which rank 0 has proven all.
	mustEqual(t, "charged", w.money().Hold, held-money.CostOf(25_920_000, 1_200_123))
	finish()
	for _, b := range batches[1:] {
		for _, ack := range w.ingest(b...) {
			mustEqual(t, "refused", ack.Refused, "")
		}
	}
	// Rank 1 has not proven the 100 s from 900 s on, which lie in the first window.
	mustEqual(t, "done", w.settle(), true)
	cost := money.CostOf(25_920_000, 1_200_123+700_000) + money.CostOf(7_777_777, 1_200_123-100_000+699_999)
	m := w.money()
	mustEqual(t, "hold", m.Hold, 0)
	mustEqual(t, "paid", 100*money.Unit-m.Wallet, cost)
	mustEqual(t, "host and fee", m.Host+m.Fee, cost)
	share := money.Share(money.CostOf(25_920_000, 1_900_123), 850_000) + money.Share(money.CostOf(7_777_777, 1_800_122),
		850_000)
	mustEqual(t, "host", m.Host, share)
	w.ledgerBalances()

	u := w.usage()
	var sum money.Nano
	var ms int64
	for _, l := range u.Lines {
		sum += l.Cost
		ms += l.MS
	}
	mustEqual(t, "sum of the lines", sum, cost)
	mustEqual(t, "time of the lines", ms, 1_900_123+1_800_122)
	mustEqual(t, "cost", u.Cost, cost)
	mustEqual(t, "posted", u.Posted, cost)
	mustEqual(t, "estimate", u.Estimate, cost)
	mustEqual(t, "billable", u.BillableMS, 1_900_123)
	mustEqual(t, "settled", u.Settled, true)
	mustEqual(t, "again", w.settle(), true)
	mustEqual(t, "after settling again", w.money(), m)
}

// Any order, batching and repetition over real transactions ends in the same books.
func TestIngest_AnyOrder(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	var first moneyState
	for k, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 1, 0, 2, 0}, {2, 0, 2, 1, 2}} {
		w := newWorld(t, d, 100*money.Unit, 25_920_000, 7_777_777)
		batches, finish := story(w)
		for i, n := range order {
			if i == k%3 {
				finish()
			}
			w.ingest(batches[n]...)
		}
		mustEqual(t, "done", w.settle(), true)
		got := w.money()
		got.Fee = 0 // one for all worlds
		if k == 0 {
			first = got
		}
		mustEqual(t, "books", got, first)
	}
}

func TestSettle_FailedStartIsFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 10*money.Unit, 2_000_000)
	w.mustAuthorise()
	w.ingest(w.segment(w.leases[0], 1, w.now, w.now+1000, true))
	w.end(w.now + 2000)
	mustEqual(t, "done", w.settle(), true)
	mustEqual(t, "money", w.money(), moneyState{Wallet: 10 * money.Unit})
	w.ledgerBalances()
}

// While a journal may still arrive, only what it could cost stays held; after a day it is given up.
func TestSettle_WaitsADayForTheJournal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 10*money.Unit, 3_600_000)
	w.mustAuthorise()
	w.age(time.Hour)
	t0 := w.now - 3_000_000
	w.window(t0, t0+600_000, t0+600_000)
	w.end(t0 + 600_000)
	w.ingest(w.segment(w.leases[0], 1, t0, t0+300_000, false))
	mustEqual(t, "done", w.settle(), false)
	mustEqual(t, "money", w.money(), moneyState{Wallet: 10*money.Unit - money.CostOf(3_600_000, 600_000),
		Hold: money.CostOf(3_600_000, 300_000), Host: money.Share(money.CostOf(3_600_000, 300_000), 850_000),
		Fee: money.CostOf(3_600_000, 300_000) - money.Share(money.CostOf(3_600_000, 300_000), 850_000)})
	var open int
	if err := w.DB.Pool.QueryRow(t.Context(),
		"SELECT count(*) FROM lease WHERE settled_at IS NULL").Scan(&open); err != nil || open != len(w.leases) {
		t.Fatal(open, err)
	}
	w.Exec("UPDATE lease SET ended_at = ended_at - interval '24 hours'") // a day later
	w.Exec(`WITH q AS (SELECT set_config('session_replication_role', 'replica', true))
		UPDATE cluster_window SET opened_ms = opened_ms - 86400000, confirmed_until_ms = confirmed_until_ms - 86400000,
		closed_ms = closed_ms - 86400000 FROM q`)
	mustEqual(t, "done a day later", w.settle(), true)
	mustEqual(t, "hold", w.money().Hold, 0)
	acks := w.ingest(w.segment(w.leases[0], 2, t0+300_000, t0+600_000, true))
	if diff := cmp.Diff([]agentapi.UsageAck{{
		LeaseRef: agentapi.LeaseRef{Lease: w.leases[0].String(), Epoch: 1},
		BootID:   boot,
		Through:  2,
		Refused:  refusedLate,
	}}, acks); diff != "" {
		t.Fatal(diff)
	}
	w.ledgerBalances()
}

// The final segment states that nothing follows: no need to wait for a gap that will never be filled.
func TestSettle_FinalSegment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 10*money.Unit, 3_600_000)
	w.mustAuthorise()
	w.age(time.Hour)
	t0 := w.now - 3_000_000
	w.window(t0, t0+600_000, t0+600_000)
	w.end(t0 + 600_000)
	w.ingest(w.segment(w.leases[0], 2, t0+300_000, t0+500_000, true))
	mustEqual(t, "with a hole", w.settle(), false)
	w.ingest(w.segment(w.leases[0], 1, t0+10_000, t0+300_000, false))
	mustEqual(t, "whole", w.settle(), true)
	mustEqual(t, "posted", w.usage().Posted, money.CostOf(3_600_000, 490_000))
	w.ledgerBalances()
}

func TestSettle_IgnoredRank(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 10*money.Unit, 3_600_000, 3_600_000)
	w.mustAuthorise()
	w.age(time.Hour)
	t0 := w.now - 3_000_000
	w.window(t0, t0+300_000, 0)
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		if err := SetRequired(ctx, tx, w.leases[1], false); err != nil {
			return err
		}
		return EndLease(ctx, tx, w.leases[1], at(t0+200_000)) // before confirmed: moved there
	})
	w.window(t0, t0+1_000_000, t0+1_000_000) // still the same window
	w.ingest(w.segments(w.leases[1], 1, t0, t0+500_000, true)...)
	w.ingest(w.segments(w.leases[0], 1, t0, t0+1_000_000, true)...)
	w.end(t0 + 1_000_000)
	mustEqual(t, "done", w.settle(), true)
	mustEqual(t, "posted", w.usage().Posted, money.CostOf(3_600_000, 300_000)+money.CostOf(3_600_000, 1_000_000))
	w.ledgerBalances()
}

// between is a database on which something happens before the first batch of statements.
type between struct {
	dbq.DBTX
	once func()
}

func (b *between) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if f := b.once; f != nil {
		b.once = nil
		f()
	}
	return b.DBTX.SendBatch(ctx, batch)
}

// A reader of a bill that settles meanwhile sees one that may still change, or the final one: never half of it as
// final.
func TestUsage_SettledWhileRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 100*money.Unit, 25_920_000)
	w.mustAuthorise()
	w.age(time.Hour)
	from := w.now - 3_000_000
	w.window(from, from, 0)
	w.ingest(w.segment(w.leases[0], 1, from, from+10_000, true))
	settle := func() {
		w.Tx(func(ctx context.Context, tx *db.Tx) error {
			_, err := CloseWindow(ctx, tx, w.cluster, at(from+10_000))
			return err
		})
		w.end(from + 10_000)
		mustEqual(t, "done", w.settle(), true)
	}
	u, err := ClusterUsage(t.Context(), dbq.New(&between{w.DB.Pool, settle}), w.cluster)
	if err != nil {
		t.Fatal(err)
	}
	if u.Settled && u.Posted != u.Cost {
		t.Errorf("settled with %s of %s posted", u.Posted, u.Cost)
	}
	if u = w.usage(); !u.Settled || u.Posted != u.Cost || u.Cost != money.CostOf(25_920_000, 10_000) {
		t.Errorf("afterwards: %+v", u)
	}
}
