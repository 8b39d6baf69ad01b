package metering

import (
	"context"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/money"
)

const perHour = money.Micro(3_600_000)

func (w *world) post() {
	w.T.Helper()
	w.Tx(func(ctx context.Context, tx *db.Tx) error { return Post(ctx, tx, w.cluster) })
}

// charges returns how many entries book usage.
func (w *world) charges() (n int) {
	w.T.Helper()
	if err := w.DB.Pool.QueryRow(context.Background(), "SELECT count(*) FROM ledger_tx WHERE kind = 'usage' AND ref = $1",
		w.cluster.String()).Scan(&n); err != nil {
		w.T.Fatal(err)
	}
	return n
}

// A running lease is booked in steps: a quarter of an hour at first, then a quarter of what is booked, and an hour at
// most. What is proven is in the meter at once, and in the bill that people see; what is held covers what waits.
func TestPosting_RunningLeaseInSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 1000*money.Unit, perHour)
	w.mustAuthorise()
	w.age(7 * time.Hour)
	w.Exec("UPDATE lease SET run_until = clock_timestamp() + interval '1 hour'")
	t0 := w.now - (6 * time.Hour).Milliseconds()
	w.window(t0, w.now, 0)
	w.Tx(func(ctx context.Context, tx *db.Tx) error { // what it was authorised with, hour by hour
		_, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind: "topup",
			Key:  "hours:" + w.cluster.String(),
			Transfers: []ledger.Transfer{{
				Debit:  ledger.StripeClearing(eur),
				Credit: ledger.Hold(w.renter, w.cluster, eur),
				Amount: money.CostOf(perHour, 6*3_600_000),
			}},
		})
		return err
	})
	held := w.money().Hold
	after := []int64{3, 6, 9, 12, 15, 19, 24, 30, 38, 48, 60} // segments of five minutes, up to which all is booked
	entries, booked := 0, int64(0)
	for k := range int64(62) {
		w.ingest(w.segments(w.leases[0], k+1, t0+k*300_000, t0+(k+1)*300_000, false)...)
		w.post() // the watchdog looks: nothing more is due
		if entries < len(after) && after[entries] == k+1 {
			entries, booked = entries+1, (k+1)*300_000
		}
		u := w.usage()
		mustEqual(t, "cost", u.Cost, money.CostOf(perHour, (k+1)*300_000))
		mustEqual(t, "posted", u.Posted, money.CostOf(perHour, booked))
		mustEqual(t, "entries", w.charges(), entries)
		m := w.money()
		mustEqual(t, "held", m.Hold, held-u.Posted)
		r, err := OrgRunning(t.Context(), w.DB.Q, w.renter)
		if err != nil || r.Accrued < u.Cost-u.Posted || m.Hold < u.Cost-u.Posted {
			t.Fatalf("%v: accrued %s of a hold of %s, %s wait", err, r.Accrued, m.Hold, u.Cost-u.Posted)
		}
	}
	w.ledgerBalances()
}

// What waits is booked when the window closes, though the lease lives on.
func TestPosting_NothingWaitsAtClose(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), perHour)
	l := w.leases[0]
	w.ingest(w.segment(l, 1, t0, t0+200_000, false))
	mustEqual(t, "running", w.usage().Posted, 0)
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := CloseWindow(ctx, tx, w.cluster, time.Time{}) // a rank is lost
		return err
	})
	w.post()
	mustEqual(t, "suspended", w.usage().Posted, money.CostOf(perHour, 200_000))
	w.ingest(w.segment(l, 2, t0+200_000, t0+300_000, false)) // a journal that comes late
	mustEqual(t, "late", w.usage().Posted, money.CostOf(perHour, 300_000))
	w.ledgerBalances()
}

// However little it is, nothing waits longer than 65 minutes.
func TestPosting_NothingWaitsForLong(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), perHour, 2*perHour)
	w.ingest(w.segment(w.leases[0], 1, t0, t0+20_000, false))
	w.post()
	mustEqual(t, "at first", w.usage().Posted, 0)
	wait := func(ms int64) {
		w.Exec("UPDATE lease_meter SET unposted_since_ms = unposted_since_ms - $1 WHERE unposted_since_ms > 0", ms)
		w.post()
	}
	wait(postWithinMS - 10*60_000)
	mustEqual(t, "after ten minutes", w.usage().Posted, 0)
	w.ingest(w.segment(w.leases[0], 2, t0+20_000, t0+30_000, false)) // the oldest counts
	wait(10 * 60_000)
	mustEqual(t, "after 65", w.usage().Posted, money.CostOf(perHour, 30_000))
	wait(postWithinMS)
	mustEqual(t, "entries", w.charges(), 1)
	w.ingest(w.segment(w.leases[0], 3, t0+30_000, t0+40_000, false))
	mustEqual(t, "waits anew", w.usage().Posted, money.CostOf(perHour, 30_000))
	w.ledgerBalances()
}

// The memo of a posting names its time as people read it.
func TestUsageEntry_MemoIsForPeople(t *testing.T) {
	t.Parallel()
	l := &lease{}
	l.Rank = 3
	mustEqual(t, "memo", usageEntry(l, Meter{}, Posting{BilledMS: 162_801}).Memo, "node 3, 2 min 42.8 s")
}
