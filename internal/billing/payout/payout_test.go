package payout

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering/meteringtest"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

const eur = "EUR"

// world is an operator who earns.
type world struct {
	t        *testing.T
	d        *db.DB
	operator id.Org
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t, dbtest.New(t), id.New[id.Org]()}
	if _, err := w.d.Pool.Exec(t.Context(), "INSERT INTO org (id, name, personal) VALUES ($1, 'o', true)",
		w.operator); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) post(debit, credit ledger.Account, n money.Nano) {
	w.t.Helper()
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind:      "topup",
			Key:       id.New[id.LedgerTx]().String(),
			Transfers: []ledger.Transfer{{Debit: debit, Credit: credit, Amount: n}},
		})
		return err
	})
}

func (w *world) tx(f func(ctx context.Context, tx *db.Tx) error) {
	w.t.Helper()
	if err := w.d.InTx(w.t.Context(), f); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) earn(n money.Nano) {
	w.post(ledger.StripeClearing(eur), ledger.HostPending(w.operator, eur), n)
}
func (w *world) giveBack(n money.Nano) {
	w.post(ledger.HostPending(w.operator, eur), ledger.StripeClearing(eur), n)
}

// now returns PostgreSQL's clock, with nothing earned at the very moment.
func (w *world) now() (at time.Time) {
	w.t.Helper()
	w.tx(func(ctx context.Context, tx *db.Tx) (err error) {
		at, err = tx.Now(ctx)
		return err
	})
	return at
}

func (w *world) mature(cutoff time.Time) {
	w.t.Helper()
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := mature(ctx, tx, w.operator, eur, cutoff)
		return err
	})
}

func (w *world) want(what string, pending, payable money.Nano) {
	w.t.Helper()
	s, err := Of(w.t.Context(), w.d.Q, w.operator, eur, DefaultHoldback)
	if err != nil || s.Pending != pending || s.Payable != payable {
		w.t.Fatalf("%s: %s pending, %s payable (%v); want %s and %s", what, s.Pending, s.Payable, err, pending, payable)
	}
	b, err := ledger.Check(w.t.Context(), w.d)
	if err != nil || !b.Balanced() {
		w.t.Fatalf("%s: books: %v %v", what, b.Problems, err)
	}
}

func TestEarningsArePayableAfterTheHoldback(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.earn(10)
	between := w.now()
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
	w.mature(w.now())
	w.want("nothing matures below zero", 0, 6)
	w.earn(7)
	w.want("earned again", 3, 10)
	if n, err := Mature(t.Context(), w.d, DefaultHoldback); err != nil || n != 0 {
		t.Errorf("%d operators, %v: nothing here is a week old", n, err)
	}
	if n, err := Mature(t.Context(), w.d, 0); err != nil || n != 1 {
		t.Errorf("%d operators, %v", n, err)
	}
	w.want("without a holdback", 0, 13)
}

func TestNothingIsPayableWhileALeaseIsFrozen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.earn(10)
	meteringtest.Frozen(t, w.d, w.operator, w.operator, eur)
	w.mature(w.now())
	w.want("frozen", 10, 0)
	if _, err := w.d.Pool.Exec(t.Context(), "UPDATE lease_meter SET frozen = false"); err != nil {
		t.Fatal(err)
	}
	w.mature(w.now())
	w.want("looked at", 0, 10)
}

// Random earnings, returns and maturings at any cutoff: payable is what is old less what was taken, never more, and
// never below zero.
func TestNothingYoungIsEverPayable(t *testing.T) {
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
			e.at = w.now()
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
			before, err := ledger.Balance(t.Context(), w.d.Q, ledger.HostPayable(w.operator, eur))
			if err != nil {
				t.Fatal(err)
			}
			w.mature(cutoff)
			payable, err := ledger.Balance(t.Context(), w.d.Q, ledger.HostPayable(w.operator, eur))
			if want := max(before, old-back); err != nil || payable != want {
				t.Fatalf("move %d: %s payable (%v), want %s of %s earned and %s returned", i, payable, err, want, all, back)
			}
			w.want(fmt.Sprint("move ", i), max(0, all-back-payable), max(0, min(payable, all-back)))
		}
	}
}

// failed is the error of a use case, whose result the test does not need.
func failed[T any](_ T, _ idem.Outcome, err error) error { return err }
