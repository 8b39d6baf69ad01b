package metering

import (
	"context"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/money"
)

// A cluster whose money ends is billed up to run_until and not a nano-unit above what was authorised, however early or
// late its hosts stop, whatever they sign of the time after, whenever the server notices, and also if money arrives
// then.
func TestCharge_NothingPastRunUntil(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(17, seed))
		rates := make([]money.Micro, 1+r.IntN(3))
		var sum money.Micro
		for i := range rates {
			rates[i] = money.Micro(1 + r.Int64N(9_999_999))
			sum += rates[i]
		}
		funds := money.CostOf(sum, 61_000+r.Int64N(500_000)) + money.Nano(len(rates)) // little: it ends at run_until
		w := newWorld(t, d, funds, rates...)
		feeBefore := w.money().Fee
		a := w.mustAuthorise()
		if a.Limit != LimitFunds || a.RunUntil.After(a.Reach) {
			t.Fatalf("%+v", a)
		}
		w.age(time.Hour)
		until := a.RunUntil.UnixMilli() - 3_600_000
		from := until - 30_000 - r.Int64N(30_000)
		near := func() int64 { return until + r.Int64N(110_000) - 50_000 } // a moment around run_until

		w.Tx(func(ctx context.Context, tx *db.Tx) error { return OpenWindow(ctx, tx, w.cluster, at(from)) })
		var wantMS []int64
		var batches [][]agentapi.Segment
		for _, l := range w.leases {
			stop := max(near(), from+2)
			wantMS = append(wantMS, min(stop, until)-from)
			cut := from + 1 + r.Int64N(stop-from-1)
			batches = append(batches, []agentapi.Segment{w.segment(l, 1, from-1_000, cut, false)},
				[]agentapi.Segment{w.segment(l, 2, cut, stop, true)})
		}
		r.Shuffle(len(batches), func(i, j int) { batches[i], batches[j] = batches[j], batches[i] })
		closed := until + r.Int64N(60_000) // the server notices late
		for _, b := range batches {
			w.ingest(b...)
			w.Tx(func(ctx context.Context, tx *db.Tx) error {
				if err := AdvanceConfirmed(ctx, tx, w.cluster, at(near())); err != nil {
					return err
				}
				return Post(ctx, tx, w.cluster)
			})
			if u, hold := w.usage(), w.money().Hold; hold < u.Cost-u.Posted {
				t.Fatalf("seed %d: the hold has %s, %s of %s are not booked", seed, hold, u.Cost-u.Posted, u.Cost)
			}
		}
		if r.IntN(2) == 0 { // money that comes too late buys nothing
			w.Tx(func(ctx context.Context, tx *db.Tx) error {
				_, err := ledger.Post(ctx, tx, ledger.Entry{
					Kind: "topup",
					Key:  "topup:late:" + w.cluster.String(),
					Transfers: []ledger.Transfer{
						{Debit: ledger.StripeClearing(eur), Credit: ledger.Wallet(w.renter, eur), Amount: money.Unit}},
				})
				return err
			})
			funds += money.Unit
		}
		w.Tx(func(ctx context.Context, tx *db.Tx) error {
			if _, err := CloseWindow(ctx, tx, w.cluster, at(closed)); err != nil {
				return err
			}
			return EndLeases(ctx, tx, w.cluster, at(closed))
		})
		mustEqual(t, "settled: all final segments are there", w.settle(), true)
		var want money.Nano
		for i, ms := range wantMS { // floor(rate × ms / 3600), by itself
			n := new(big.Int).Mul(big.NewInt(int64(rates[i])), big.NewInt(ms))
			want += money.Nano(n.Div(n, big.NewInt(3600)).Int64())
		}
		u := w.usage()
		if u.Posted != want || u.Posted > a.Held {
			t.Errorf("seed %d: billed %s of an authorised %s, want %s", seed, u.Posted, a.Held, want)
		}
		m := w.money()
		if m.Hold != 0 || m.Wallet+want != funds || m.Host+m.Fee-feeBefore != want {
			t.Errorf("seed %d: %+v, %s was paid in", seed, m, funds)
		}
	}
	if books, err := ledger.Check(t.Context(), d); err != nil || !books.Balanced() {
		t.Errorf("books: %v %v", books.Problems, err)
	}
}
