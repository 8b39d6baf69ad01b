package metering

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// A crash at every statement of every step, then the step again, ends in the same books as no crash at all.
func TestIngest_CrashAtAnyStatement(t *testing.T) {
	t.Parallel()
	play := func(d *db.DB, step func(w *world, f func() error)) (moneyState, []UsageLine) {
		w := newWorld(t, d, 100*money.Unit, 25_920_000, 7_777_777)
		step(w, func() error { _, err := w.authorise(nil); return err })
		w.age(time.Hour)
		t0 := w.now - 3_500_000
		w.window(t0, t0+1_200_123, 0)
		for _, l := range w.leases {
			step(w, func() error {
				_, err := NewCollector(d).Ingest(context.Background(), w.host, w.segments(l, 1, t0-5_000, t0+1_100_000, false), nil)
				return err
			})
		}
		step(w, func() error {
			return d.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
				if err := AdvanceConfirmed(ctx, tx, w.cluster, at(t0+1_300_000)); err != nil {
					return err
				}
				if _, err := CloseWindow(ctx, tx, w.cluster, at(t0+1_400_000)); err != nil {
					return err
				}
				if err := Post(ctx, tx, w.cluster); err != nil {
					return err
				}
				return EndLeases(ctx, tx, w.cluster, at(t0+1_400_000))
			})
		})
		for i, l := range w.leases {
			step(w, func() error {
				segs := w.segments(l, 5, t0+1_100_000, t0+1_400_000-int64(i), true)
				_, err := NewCollector(d).Ingest(context.Background(), w.host, segs, nil)
				return err
			})
		}
		step(w, func() error {
			return d.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
				done, err := Settle(ctx, tx, w.cluster)
				if err == nil && !done {
					err = errors.New("not settled")
				}
				return err
			})
		})
		w.ledgerBalances()
		lines := w.usage().Lines
		for i := range lines { // what differs between two worlds
			lines[i].Lease, lines[i].Host, lines[i].From, lines[i].To = id.Lease{}, id.Host{}, time.Time{}, time.Time{}
		}
		m := w.money()
		m.Fee = 0 // one for all worlds
		return m, lines
	}
	d, k := dbtest.NewMortal(t)
	quiet, quietLines := play(d, func(_ *world, f func() error) {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	})
	crashes := 0
	crashed, crashedLines := play(d, func(w *world, f func() error) {
		before := w.money()
		for n := int64(1); ; n++ {
			k.Left.Store(n)
			err := f()
			struck := k.Left.Load() <= 0
			k.Left.Store(0)
			if err == nil {
				return // struck or not: all that comes after the commit is the notice of a budget, which is made good later
			}
			if !struck {
				t.Fatal(err)
			}
			crashes++
			if diff := cmp.Diff(before, w.money()); diff != "" {
				t.Fatalf("a transaction that died at statement %d left something: %s", n, diff)
			}
		}
	})
	if crashes < 50 { // four round trips for each report, one more where it books
		t.Fatalf("only %d crash points: the killer does not strike", crashes)
	}
	mustEqual(t, "books", crashed, quiet)
	if !slices.Equal(quietLines, crashedLines) {
		t.Fatalf("lines: %+v\nwithout a crash: %+v", crashedLines, quietLines)
	}
}
