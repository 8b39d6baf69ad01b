package payout

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/billingtest/meteringtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

const eur = billingtest.EUR

// world is an operator who earns.
type world struct {
	*billingtest.World
	operator id.Org
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := billingtest.New(t, dbtest.New(t))
	return &world{w, w.Org()}
}

func (w *world) earn(n money.Nano) {
	w.Move(ledger.StripeClearing(eur), ledger.HostPending(w.operator, eur), n)
}
func (w *world) giveBack(n money.Nano) {
	w.Move(ledger.HostPending(w.operator, eur), ledger.StripeClearing(eur), n)
}

func (w *world) mature(cutoff time.Time) {
	w.T.Helper()
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := mature(ctx, tx, w.operator, eur, cutoff, nil)
		return err
	})
}

func (w *world) want(what string, pending, payable money.Nano) {
	w.T.Helper()
	s, err := Of(w.T.Context(), w.DB.Q, w.operator, eur, DefaultHoldback)
	if err != nil || s.Pending != pending || s.Payable != payable {
		w.T.Fatalf("%s: %s pending, %s payable (%v); want %s and %s", what, s.Pending, s.Payable, err, pending, payable)
	}
	b, err := ledger.Check(w.T.Context(), w.DB)
	if err != nil || !b.Balanced() {
		w.T.Fatalf("%s: books: %v %v", what, b.Problems, err)
	}
}

func TestMature_AfterHoldback(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.earn(10)
	between := w.Now()
	w.earn(5)
	w.want("before", 15, 0)
	w.mature(between.Add(-time.Hour))
	w.want("all of it is young", 15, 0)
	w.mature(between)
	w.want("the first is old", 5, 10)
	w.mature(between)
	w.want("again", 5, 10)
	w.giveBack(3) // for a host's fault: of what is pending
	w.mature(between)
	w.want("given back", 2, 10)
	w.giveBack(6)
	w.want("given back beyond what is pending", 0, 6)
	w.mature(w.Now())
	w.want("nothing matures below zero", 0, 6)
	w.earn(7)
	w.want("earned again", 3, 10)
	if n, err := Mature(t.Context(), w.DB, DefaultHoldback); err != nil || n != 0 {
		t.Errorf("%d operators, %v: nothing here is a week old", n, err)
	}
	if n, err := Mature(t.Context(), w.DB, 0); err != nil || n != 1 {
		t.Errorf("%d operators, %v", n, err)
	}
	w.want("without a holdback", 0, 13)
}

func TestMature_FrozenLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.earn(10)
	meteringtest.Frozen(t, w.DB, w.operator, w.operator, eur)
	w.mature(w.Now())
	w.want("frozen", 10, 0)
	if _, err := w.DB.Pool.Exec(t.Context(), "UPDATE lease_meter SET frozen = false"); err != nil {
		t.Fatal(err)
	}
	w.mature(w.Now())
	w.want("looked at", 0, 10)
}

// Random earnings, returns and maturings at any cutoff: payable is what is old less what was taken, never more, and
// never below zero.
func TestMature_NothingBeforeHoldback(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := rand.New(rand.NewPCG(5, 8))
	type earning struct {
		n  money.Nano
		at time.Time // not after it
	}
	var earned []earning
	var back money.Nano
	for i := range 60 {
		switch r.IntN(3) {
		case 0:
			e := earning{n: money.Nano(1 + r.IntN(1000))}
			w.earn(e.n)
			e.at = w.Now()
			earned = append(earned, e)
		case 1:
			n := money.Nano(1 + r.IntN(300))
			back += n
			w.giveBack(n)
		default:
			if len(earned) == 0 {
				continue
			}
			cutoff := earned[r.IntN(len(earned))].at
			var old, all money.Nano
			for _, e := range earned {
				all += e.n
				if !e.at.After(cutoff) {
					old += e.n
				}
			}
			before, err := ledger.Balance(t.Context(), w.DB.Q, ledger.HostPayable(w.operator, eur))
			if err != nil {
				t.Fatal(err)
			}
			w.mature(cutoff)
			payable, err := ledger.Balance(t.Context(), w.DB.Q, ledger.HostPayable(w.operator, eur))
			if want := max(before, old-back); err != nil || payable != want {
				t.Fatalf("move %d: %s payable (%v), want %s of %s earned and %s returned", i, payable, err, want, all, back)
			}
			w.want(fmt.Sprint("move ", i), max(0, all-back-payable), max(0, min(payable, all-back)))
		}
	}
}
