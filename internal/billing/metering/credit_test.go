package metering

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/testing/billingtest"
)

func (w *world) lose(l id.Lease) {
	w.T.Helper()
	w.Tx(func(ctx context.Context, tx *db.Tx) error { return CreditLoss(ctx, tx, w.cluster, l, "host_lost") })
}

func (w *world) credits() []Credit {
	w.T.Helper()
	all, err := Credits(w.T.Context(), w.DB.Q, w.cluster)
	if err != nil {
		w.T.Fatal(err)
	}
	return all
}

// A host is lost after 90 minutes: the last hour of its lease is given back, what its journal proves later too, the
// other's lease is not touched; and saying so again changes nothing.
func TestCredit_LastHourOfLostHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 100*money.Unit, 1_000_000, 2_000_000)
	w.mustAuthorise()
	w.age(2 * time.Hour)
	// two hours are paid for
	w.Exec("UPDATE lease SET run_until = run_until + interval '1 hour' WHERE cluster_id = $1", w.cluster)
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind: "authorise",
			Key:  "authorise:" + w.cluster.String(),
			Transfers: []ledger.Transfer{
				{Debit: ledger.Wallet(w.renter, eur), Credit: ledger.Hold(w.renter, w.cluster, eur), Amount: 3 * money.Unit}},
		})
		return err
	})
	t0 := w.now - 5_400_000
	w.window(t0, w.now, 0)
	good, bad := w.leases[0], w.leases[1]
	w.ingest(w.segments(good, 1, t0, w.now, false)...)
	w.ingest(w.segments(bad, 1, t0, w.now-600_000, false)...) // the last ten minutes have not arrived yet
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := CloseWindow(ctx, tx, w.cluster, time.Time{})
		return err
	})
	before := w.money()
	w.lose(bad)
	back := money.CostOf(2_000_000, 50*60_000)
	c := w.credits()
	if len(c) != 1 || c[0].Amount != back || c[0].HostPart != money.Share(back, 850_000) || c[0].Lease != bad {
		t.Fatalf("%+v, want %s", c, back)
	}
	after := w.money()
	mustEqual(t, "wallet", after.Wallet-before.Wallet, back)
	mustEqual(t, "host", before.Host-after.Host, c[0].HostPart)
	mustEqual(t, "fee", before.Fee-after.Fee, back-c[0].HostPart)
	for range 2 {
		w.lose(bad)
	}
	mustEqual(t, "again", w.money(), after)

	w.ingest(w.segments(bad, 100, w.now-600_000, w.now, true)...)
	w.ingest(w.segment(good, 100, w.now, w.now, true))
	w.end(w.now)
	mustEqual(t, "settled", w.settle(), true)
	mustEqual(t, "settled again", w.settle(), true)
	if c = w.credits(); c[0].Amount != 2*money.Unit {
		t.Errorf("%s credited, want the whole hour", c[0].Amount)
	}
	if u := w.usage(); w.money().Wallet != 100*money.Unit-u.Cost+c[0].Amount {
		t.Errorf("wallet %s after a cost of %s and a credit of %s", w.money().Wallet, u.Cost, c[0].Amount)
	}
	for _, org := range []id.Org{w.renter, w.operator} {
		told, err := notify.List(t.Context(), w.DB.Q, org, notify.Filter{Limit: 10})
		if err != nil || len(told) != 2 {
			t.Fatalf("told %+v %v, want of both amounts", told, err)
		}
		share := func(n money.Nano) money.Nano { return n }
		if org == w.operator {
			share = func(n money.Nano) money.Nano { return money.Share(n, 850_000) }
		}
		all, first := share(2*money.Unit), share(back)
		late, early := told[0], told[1]
		if !strings.HasPrefix(late.Title, (all-first).Plain()+" ") || !strings.Contains(late.Title, " more ") ||
			!strings.Contains(late.Body, " "+all.Plain()+" EUR in total") {
			t.Errorf("the second notice does not say what it adds (%s) and the total (%s): %+v", all-first, all, late)
		}
		if !strings.HasPrefix(early.Title, first.Plain()+" ") || strings.Contains(early.Title, "more") ||
			strings.Contains(early.Body, "in all") {
			t.Errorf("the first notice: %+v, want %s", early, first)
		}
	}
	w.ledgerBalances()
}

// A lease shorter than the hour is given back whole, and never more: host and fee end where they began.
func TestCredit_CappedAtTheCharge(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	for _, rate := range []money.Micro{1, 7, 333_333, 4_999_999} {
		w := newWorld(t, d, 100*money.Unit, rate)
		w.mustAuthorise()
		w.age(time.Hour)
		t0 := w.now - 3_000_000
		fee := w.money().Fee // of other worlds too
		w.window(t0, w.now-1_234, 0)
		for i, s := range w.segments(w.leases[0], 1, t0, w.now-1_234, true) { // in many postings
			w.ingest(s)
			if i == 3 {
				w.Tx(func(ctx context.Context, tx *db.Tx) error { // reported lost while the window is open
					return CreditLoss(ctx, tx, w.cluster, w.leases[0], "gpu_failed")
				})
				mustEqual(t, "not before the window is closed", len(w.credits()), 0)
			}
		}
		w.Tx(func(ctx context.Context, tx *db.Tx) error {
			_, err := CloseWindow(ctx, tx, w.cluster, time.Time{})
			return err
		})
		w.end(w.now)
		w.lose(w.leases[0])
		mustEqual(t, "settled", w.settle(), true)
		mustEqual(t, "all of it", w.money(), moneyState{Wallet: 100 * money.Unit, Fee: fee})
		w.ledgerBalances()
	}
}

// Of a credit for a failure that the renter could have caused, the part up to the cap is booked at once, also when the
// proof of the charges comes later; the rest waits for a person, whose refusal takes nothing back.
func TestCredit_OnlyRestWaitsForReview(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	for _, approve := range []bool{true, false} {
		w := newWorld(t, d, 100*money.Unit, 20_000_000)
		w.mustAuthorise()
		w.age(time.Hour)
		t0 := w.now - 3_000_000
		w.window(t0, w.now, 0)
		segments := w.segments(w.leases[0], 1, t0, w.now, true)
		w.ingest(segments[0])
		w.Tx(func(ctx context.Context, tx *db.Tx) error {
			_, err := CloseWindow(ctx, tx, w.cluster, time.UnixMilli(w.now))
			return err
		})
		lose := func() {
			w.Tx(func(ctx context.Context, tx *db.Tx) error {
				return CreditLoss(ctx, tx, w.cluster, w.leases[0], "overlay_failed")
			})
		}
		lose()
		lose()
		w.ingest(segments[1:]...)
		w.end(w.now)
		mustEqual(t, "settled", w.settle(), true)
		mustEqual(t, "booked at once", w.credits()[0].Amount, 5*money.Unit)
		admin := account.Principal{User: id.New[id.User](), Org: w.renter, Admin: true}
		w.Exec("INSERT INTO app_user (id, email, password_hash) VALUES ($1, $2, 'x')", admin.User, admin.User.String()+
			"@example.com")
		all, err := NewLeases(w.DB).HeldCredits(t.Context(), admin)
		rest := money.CostOf(20_000_000, 3_000_000) - 5*money.Unit
		if err != nil || len(all) != 1 || all[0].Amount != rest || all[0].Booked != 5*money.Unit {
			t.Fatalf("held %+v %v, want %s", all, err, rest)
		}
		if err := billingtest.Err(NewLeases(w.DB).DecideCredit(w.T.Context(), admin, w.leases[0], approve, "looked at it",
			idem.Request{})); err != nil {
			t.Fatal(err)
		}
		want := 5 * money.Unit
		if approve {
			want += rest
		}
		mustEqual(t, "after the decision", w.credits()[0].Amount, want)
		w.ledgerBalances()
	}
}

// The platform returns no fee that it has paid to the cluster's hosts as relief, neither with a credit nor when staff
// compensate charges: a renter who is the operator at once would otherwise get it twice.
func TestCredit_FeePaidAsReliefStays(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	ways := map[string]func(*world, id.Lease){
		"credit":       (*world).lose,
		"compensation": (*world).compensate,
	}
	for name, giveBack := range ways {
		for _, kept := range []money.Nano{-1_000, 0, 100_000_000, 1_000_000_000} { // of the lost lease's fee
			w := newWorld(t, d, 100*money.Unit, 1_000_000, 2_000_000)
			w.mustAuthorise()
			w.age(time.Hour)
			t0 := w.now - 3_000_000
			fee := w.money().Fee // of other worlds too
			w.window(t0, w.now, 0)
			for _, l := range w.leases {
				w.ingest(w.segments(l, 1, t0, w.now, true)...)
			}
			w.Tx(func(ctx context.Context, tx *db.Tx) error {
				_, err := CloseWindow(ctx, tx, w.cluster, time.Time{})
				return err
			})
			before := w.money()
			lost := money.CostOf(2_000_000, w.now-t0)
			part := lost - money.Share(lost, 850_000)
			w.Exec("INSERT INTO standby_relief (victim, cluster_id, ms, host_posted) VALUES ($2, $1, 1, $3)", w.cluster,
				w.leases[0], before.Fee-fee-part+kept)
			for range 2 {
				giveBack(w, w.leases[1])
			}
			back := max(0, part-max(0, kept))
			mustEqual(t, name+": fee returned", before.Fee-w.money().Fee, back)
			mustEqual(t, name+": host", before.Host-w.money().Host, lost-part)
			mustEqual(t, name+": wallet", w.money().Wallet-before.Wallet, lost-part+back)
			w.ledgerBalances()
		}
	}
}

// compensate gives all that is left of a lease's charges back, as staff may.
func (w *world) compensate(l id.Lease) {
	w.T.Helper()
	for _, charge := range w.chargesOf(l) {
		err := w.DB.InTx(w.T.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := ledger.Compensate(ctx, tx, charge, 0, "we were wrong")
			return err
		})
		if err != nil && !fault.Is(err, fault.Invalid) { // nothing is left of it
			w.T.Fatal(err)
		}
	}
}

// What was never billed needs no credit.
func TestCredit_LossBeforeAnyWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 100*money.Unit, 1_000_000)
	w.mustAuthorise()
	w.lose(w.leases[0])
	if c := w.credits(); len(c) != 0 {
		t.Errorf("%+v", c)
	}
}
