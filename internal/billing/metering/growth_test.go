package metering

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// liveHolds returns how many holds the sums of what the renter has add up.
func (w *world) liveHolds() (n int) {
	w.T.Helper()
	if err := w.DB.Pool.QueryRow(context.Background(), "SELECT count(*) FROM ledger_account WHERE org_id = $1 AND kind "+
		"= 'renter_hold' AND retired_at IS NULL",
		w.renter).Scan(&n); err != nil {
		w.T.Fatal(err)
	}
	return n
}

// What an org has is added up over its live clusters: the hold of a settled one is retired, also when the settlement
// was another version's, and comes back when money moves into it.
func TestSettle_RetiresHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 100*money.Unit, 1_000_000)
	w.mustAuthorise()
	w.window(w.now, w.now, 0)
	held := func() money.Nano {
		t.Helper()
		b, err := ledger.OrgBalances(t.Context(), w.DB.Q, w.renter, eur)
		if err != nil {
			t.Fatal(err)
		}
		return b.Held
	}
	if w.liveHolds() != 1 || held() == 0 {
		t.Fatalf("%d live holds with %s", w.liveHolds(), held())
	}
	w.end(w.now)
	mustEqual(t, "settled", w.settle(), true)
	if w.liveHolds() != 0 || held() != 0 {
		t.Fatalf("settled: %d live holds with %s", w.liveHolds(), held())
	}
	move := func(from, to ledger.Account, key string) {
		w.Tx(func(ctx context.Context, tx *db.Tx) error {
			_, err := ledger.Post(ctx, tx, ledger.Entry{
				Kind:      "authorise",
				Key:       key,
				Transfers: []ledger.Transfer{{Debit: from, Credit: to, Amount: money.Unit}},
			})
			return err
		})
	}
	hold, wallet := ledger.Hold(w.renter, w.cluster, eur), ledger.Wallet(w.renter, eur)
	move(wallet, hold, "1")
	if w.liveHolds() != 1 || held() != money.Unit {
		t.Fatalf("moved into: %d live holds with %s", w.liveHolds(), held())
	}
	move(hold, wallet, "2")
	w.Exec("UPDATE ledger_account SET created_at = created_at - interval '2 days'")
	n, err := ledger.RetireHolds(t.Context(), w.DB)
	if err != nil || n != 1 || w.liveHolds() != 0 {
		t.Fatalf("%d retired, %d live: %v", n, w.liveHolds(), err)
	}
	w.ledgerBalances()
}

// No transaction waits with meters and earnings locked for a notice of a budget: it is written after the booking has
// committed.
func TestBudget_BookingDoesNotWaitForNotice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 100*money.Unit, 1_000_000)
	limit := 101 * money.Unit / 100
	b := w.setBudget(budget.Limits{Cap: &limit})
	w.mustAuthorise()
	w.age(time.Hour)
	from := w.now - time.Hour.Milliseconds()
	w.window(from, w.now, 0)
	key := budget.Notice(w.renter, b.ID.String(), "", "spent", limit*6/10, limit, eur).Key
	other, err := w.DB.Pool.Begin(t.Context()) // is about to write the same
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(t.Context(), "INSERT INTO notice (id, org_id, dedupe_key, severity, title) VALUES ($1, $2, "+
		"$3, 'info', 'x')", id.New[id.Notice](), w.renter, key); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.ingest(w.segments(w.leases[0], 1, from, w.now-12*60_000, false)...)
	}()
	for posted := 0; posted == 0; {
		if err := w.DB.Pool.QueryRow(t.Context(), "SELECT sum(posted) FROM lease_meter").Scan(&posted); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			t.Fatal("the notice was not waited for at all: the test shows nothing")
		default:
		}
	}
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-done
	if n, err := budget.NotifyAll(t.Context(), w.DB); err != nil || n != 1 || len(w.notices()) != 1 {
		t.Errorf("%d budgets watched, notified %q: %v", n, w.notices(), err)
	}
}

// The next pass over all budgets sends a notice that was lost.
func TestBudget_LostNoticeSentLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 100*money.Unit, 1_000_000)
	limit := 101 * money.Unit / 100
	w.setBudget(budget.Limits{Cap: &limit})
	w.mustAuthorise()
	w.age(time.Hour)
	from := w.now - time.Hour.Milliseconds()
	w.window(from, w.now, 0)
	w.ingest(w.segments(w.leases[0], 1, from, w.now-12*60_000, false)...)
	was := w.notices()
	w.Exec("DELETE FROM notice")
	for range 2 {
		if n, err := budget.NotifyAll(t.Context(), w.DB); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	}
	if got := w.notices(); len(was) != 1 || len(got) != 1 || got[0] != was[0] {
		t.Errorf("%q, then %q", was, got)
	}
}

// chargesOf returns the ids of the lease's charges, oldest first.
func (w *world) chargesOf(l id.Lease) (out []id.LedgerTx) {
	w.T.Helper()
	all, err := ledger.Search(context.Background(), w.DB.Q, w.cluster.String(), id.LedgerTx{}, 100)
	if err != nil {
		w.T.Fatal(err)
	}
	for _, b := range all {
		if b.Kind == "usage" && strings.HasPrefix(b.Key, "usage:"+l.String()+":") {
			out = append([]id.LedgerTx{b.ID}, out...)
		}
	}
	return out
}

// Charges that were compensated before the host failed are not given back again, and what was credited is not
// compensated again: whatever the order, a renter gets back at most what they paid.
func TestCredit_WithCompensationCappedAtCharges(t *testing.T) {
	t.Parallel()
	for name, creditFirst := range map[string]bool{"compensated first": false, "credited first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newDB(t), 100*money.Unit, 1_000_000)
			w.mustAuthorise()
			w.age(time.Hour)
			t0 := w.now - time.Hour.Milliseconds()
			w.window(t0, w.now, 0)
			lease := w.leases[0]
			for i := range int64(3) { // three charges of twenty minutes
				w.ingest(w.segments(lease, 1+20*i, t0+20*60_000*i, t0+20*60_000*(i+1), false)...)
				w.posted()
			}
			w.Tx(func(ctx context.Context, tx *db.Tx) error {
				_, err := CloseWindow(ctx, tx, w.cluster, time.Time{})
				return err
			})
			charges := w.chargesOf(lease)
			if len(charges) != 3 {
				t.Fatalf("%d charges", len(charges))
			}
			if creditFirst {
				w.lose(lease)
			}
			for _, c := range charges[:2] {
				err := w.DB.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
					_, err := ledger.Compensate(ctx, tx, c, 0, "we were wrong")
					return err
				})
				if creditFirst != fault.Is(err, fault.Invalid) {
					t.Errorf("compensated: %v", err)
				}
			}
			if !creditFirst {
				w.lose(lease)
			}
			m := w.money()
			if paid := w.usage().Posted; m.Wallet+m.Hold != 100*money.Unit || m.Host != 0 || m.Fee != 0 || paid == 0 {
				t.Errorf("wallet and hold %s of 100 paid in, the host has %s, the platform %s", m.Wallet+m.Hold, m.Host, m.Fee)
			}
			w.ledgerBalances()
		})
	}
}

// A credit for time from before a budget was made does not make room in it.
func TestBudget_CreditForOlderTimeNotCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 100*money.Unit, 1_000_000)
	w.mustAuthorise()
	w.age(time.Hour)
	t0 := w.now - time.Hour.Milliseconds()
	w.window(t0, w.now, 0)
	w.ingest(w.segments(w.leases[0], 1, t0, w.now, false)...)
	w.posted()
	limit := money.Unit
	before := w.setBudget(budget.Limits{Cap: &limit})
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := CloseWindow(ctx, tx, w.cluster, time.Time{})
		return err
	})
	w.lose(w.leases[0])
	if c := w.credits(); len(c) != 1 || c[0].Amount == 0 {
		t.Fatalf("%+v", c)
	}
	if b := w.budgets()[0]; b.Committed != before.Committed || *b.Left() > limit {
		t.Errorf("%s committed, %s before; %s left of %s", b.Committed, before.Committed, *b.Left(), limit)
	}
	if _, err := w.DB.Pool.Exec(t.Context(), "UPDATE budget SET committed = -1"); err == nil {
		t.Error("a budget below zero is taken")
	}
}

// What bills are verified with is frozen: prices, anchors, segments, and credits but for their growth.
func TestEvidence_Immutable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 100*money.Unit, 1_000_000)
	w.Exec("INSERT INTO service_credit (lease_id, cluster_id, reason, from_ms, through_ms, credited) VALUES ($1, $2, "+
		"'x', 0, 1, 5)", w.leases[0], w.cluster)
	for _, sql := range []string{
		"UPDATE lease_price SET rate = 1", "UPDATE lease_price SET items = '[]'", "DELETE FROM lease_price",
		"TRUNCATE lease_price",
		"UPDATE time_anchor SET server_ms = 0", "DELETE FROM time_anchor", "TRUNCATE time_anchor",
		"UPDATE service_credit SET credited = 4", "UPDATE service_credit SET through_ms = 2", "DELETE FROM service_credit",
		"TRUNCATE service_credit",
		"TRUNCATE usage_segment", "TRUNCATE segment_batch",
	} {
		if _, err := w.DB.Pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("taken: %s", sql)
		}
	}
	w.Exec("UPDATE service_credit SET credited = 6")
}

// A window that is closed is what a bill was made from: no one can open, move or remove it. Nothing impossible is
// written either.
func TestWindows_ClosedAreImmutable(t *testing.T) {
	t.Parallel()
	w, t0 := open(t, newDB(t), 3_600_000)
	w.Exec("UPDATE cluster_window SET closed_ms = $1", t0+60_000)
	for _, sql := range []string{
		"UPDATE cluster_window SET closed_ms = NULL", "UPDATE cluster_window SET closed_ms = closed_ms + 1",
		"UPDATE cluster_window SET opened_ms = opened_ms - 1",
		"UPDATE cluster_window SET confirmed_until_ms = confirmed_until_ms", "DELETE FROM cluster_window",
		"TRUNCATE cluster_window",
		"UPDATE lease_meter SET numerator = -1", "UPDATE lease_meter SET host_posted = posted + 1",
		"UPDATE lease_meter SET host_posted = -1", "UPDATE lease_meter SET billed_ms = -1",
		"UPDATE ledger_account SET currency = 'usd'", "UPDATE lease SET currency = ''",
		"INSERT INTO ledger_account (id, kind, owner, currency) SELECT gen_random_uuid(), kind, gen_random_uuid(), 'usd' " +
			"FROM ledger_account",
		"UPDATE lease SET host_share_ppm = 1000001",
		"INSERT INTO usage_segment (lease_id, epoch, boot_id, seq, anchor, boot_end_ms, start_ms, end_ms, energy_mj, " +
			"final, payload_hash, signature) VALUES (gen_random_uuid(), 1, 'b', 1, 1, 1, 1, 2, 0, false, '', '')",
	} {
		if _, err := w.DB.Pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("taken: %s", sql)
		}
	}
}
