package metering

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

// A random hour of authorising, opening, confirming, suspending, reporting and settling, with little money and with
// much: no posting ever finds the hold too small, every step leaves balanced books, and in the end wallet, host and fee
// have exactly what was paid in.
func TestWalk_RandomHourStaysWithinHold(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(11, seed))
		funds := money.Nano(1+r.Int64N(4000)) * money.Unit / 1000
		w := newWorld(t, d, funds, money.Micro(100_000+r.Int64N(2_000_000)), money.Micro(100_000+r.Int64N(2_000_000)))
		feeBefore := w.money().Fee
		if _, err := w.authorise(nil); fault.Is(err, fault.InsufficientFunds) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		w.age(time.Hour)
		clock := w.now - 3_600_000
		last := [2]int64{clock, clock}
		seq := [2]int64{}
		for clock < w.now && w.money().Hold >= 0 {
			clock = min(w.now, clock+r.Int64N(300_000))
			switch k := r.IntN(2); r.IntN(6) {
			case 0:
				w.Tx(func(ctx context.Context, tx *db.Tx) error { return OpenWindow(ctx, tx, w.cluster, at(clock)) })
			case 1, 2:
				w.Tx(func(ctx context.Context, tx *db.Tx) error {
					if err := AdvanceConfirmed(ctx, tx, w.cluster, at(clock)); err != nil {
						return err
					}
					return Post(ctx, tx, w.cluster)
				})
			case 3:
				end := at(clock)
				if r.IntN(2) == 0 {
					end = time.Time{}
				}
				w.Tx(func(ctx context.Context, tx *db.Tx) error {
					_, err := CloseWindow(ctx, tx, w.cluster, end)
					return err
				})
			case 4:
				var segs []agentapi.Segment
				for last[k] < clock {
					from := last[k]
					last[k] = min(clock, from+1+r.Int64N(300_000))
					if seq[k]++; r.IntN(8) > 0 {
						segs = append(segs, w.segment(w.leases[k], seq[k], from, last[k], false))
					}
				}
				if len(segs) > 0 {
					w.ingest(segs...)
				}
			case 5: // mid-life: gives back what is spare, keeps what is promised
				if w.settle() {
					t.Fatal("settled while it lives")
				}
			}
			if u, hold := w.usage(), w.money().Hold; u.Posted > u.Cost || hold < u.Cost-u.Posted {
				t.Fatalf("seed %d: %s of %s are booked, %s is held", seed, u.Posted, u.Cost, hold)
			}
			if r.IntN(5) == 0 {
				w.mustAuthorise()
				w.Exec("UPDATE lease SET run_until = least(run_until, clock_timestamp()) WHERE cluster_id = $1", w.cluster)
			}
		}
		w.Tx(func(ctx context.Context, tx *db.Tx) error {
			if _, err := CloseWindow(ctx, tx, w.cluster, at(clock)); err != nil {
				return err
			}
			return EndLeases(ctx, tx, w.cluster, at(clock))
		})
		w.settle()
		m := w.money()
		if sum := m.Wallet + m.Hold + m.Host + m.Fee - feeBefore; sum != funds {
			t.Fatalf("seed %d: %s of %s are left: %+v", seed, sum, funds, m)
		}
		u := w.usage()
		var lines money.Nano
		for _, l := range u.Lines {
			lines += l.Cost
		}
		if lines != u.Cost || u.Cost != u.Posted || u.Posted != m.Host+m.Fee-feeBefore || u.Estimate-u.Posted > m.Hold {
			t.Fatalf("seed %d: lines %s, cost %s, posted %s, %+v", seed, lines, u.Cost, u.Posted, m)
		}
		w.ledgerBalances()
	}
}

// BenchmarkIngest is one host's full report: 200 signed segments of 8 leases, verified, stored, posted.
func BenchmarkIngest(b *testing.B) {
	b.ReportAllocs()
	var rates []money.Micro
	for range 8 {
		rates = append(rates, 1_000_000)
	}
	d := newDB(b)
	w := newWorld(b, d, 1000*money.Unit, rates...)
	w.mustAuthorise()
	w.age(time.Hour)
	t0 := w.now - 3_600_000
	w.window(t0, w.now, 0)
	seq, n := int64(0), 0
	for b.Loop() {
		var segs []agentapi.Segment
		for _, l := range w.leases {
			for k := range int64(25) {
				from := t0 + (seq+k)*10
				segs = append(segs, w.segment(l, seq+k+1, from, from+10, false))
			}
		}
		seq += 25
		w.ingest(segs...)
		n += len(segs)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "segments/s")
}
