package metering

import (
	"context"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// A transaction that charges for usage locks pending earnings and then the wallet. Crediting a cluster whose hosts have
// several operators must not hold the wallet while it waits for one of them.
func TestCredit_LocksWalletLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newDB(t), 100*money.Unit, 2_000_000, 2_000_000)
	other := w.Org()
	w.Exec("UPDATE lease SET host_org_id = $1 WHERE id = $2", other, w.leases[1])
	w.mustAuthorise()
	w.age(time.Hour)
	t0 := w.now - 600_000
	w.window(t0, w.now, w.now)
	for _, l := range w.leases {
		w.ingest(w.segments(l, 1, t0, w.now, true)...)
	}

	charging, err := w.DB.Pool.Begin(t.Context()) // as another cluster's charge does: the second operator's earnings first
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = charging.Rollback(context.WithoutCancel(t.Context())) }()
	take := func(kind string, owner id.Org, how string) error {
		_, err := charging.Exec(t.Context(), "SELECT FROM ledger_balance WHERE account_id = (SELECT id FROM "+
			"ledger_account WHERE kind = $1 AND owner = $2) FOR UPDATE "+how, kind, owner.UUID())
		return err
	}
	if err := take("host_pending", other, ""); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- w.DB.InTx(context.WithoutCancel(t.Context()), func(ctx context.Context, tx *db.Tx) error {
			for _, l := range w.leases {
				if err := CreditLoss(ctx, tx, w.cluster, l, "host_lost"); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	for waiting := 0; waiting == 0; {
		select {
		case err := <-done:
			t.Fatalf("the credit does not wait: %v", err)
		default:
		}
		if err := w.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = "+
			"current_database() AND wait_event_type = 'Lock'").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	if err := take("renter_wallet", w.renter, "NOWAIT"); err != nil {
		t.Errorf("a credit that waits for an operator's earnings holds the wallet: %v", err)
	}
	if err := charging.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if c := w.credits(); len(c) != 2 || c[0].Amount != money.CostOf(2_000_000, 600_000) || c[1].Amount != c[0].Amount {
		t.Errorf("credits: %+v", c)
	}
	w.ledgerBalances()
}
