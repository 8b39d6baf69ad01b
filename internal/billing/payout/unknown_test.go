package payout

import (
	"testing"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/money"
)

// A database that was restored to before a payout does not pay it again.
func TestPayout_RestoredDatabase(t *testing.T) {
	t.Parallel()
	x := funded(t, 500*money.Unit)
	x.earn(100 * money.Unit)
	x.payable()
	x.payDue()
	x.sent("before the restore", 1, 100*money.Unit)
	paid := x.last()
	// The restore: what came after the earnings is gone.
	x.Move(x.inFlight(), x.owedTo(), 100*money.Unit)
	x.Exec("DELETE FROM stripe_outbox WHERE ref = $1", paid.ID.String())
	x.Exec("ALTER TABLE payout DISABLE TRIGGER payout_kept")
	x.Exec("DELETE FROM payout WHERE id = $1", paid.ID)
	x.Exec("ALTER TABLE payout ENABLE TRIGGER payout_kept")
	for range 3 {
		x.payDue()
		x.Exec("UPDATE stripe_outbox SET next_at = clock_timestamp() WHERE state IN ('pending', 'sent', 'unknown')")
		if _, err := x.p.out.SendDue(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	x.sent("after the restore", 1, 100*money.Unit)
	if p := x.last(); p.State != Pending {
		t.Fatalf("%+v", p)
	}
}

func (x *admin) inFlight() ledger.Account { return ledger.StripeClearing(eur) }
func (x *admin) owedTo() ledger.Account   { return ledger.HostPayable(x.operator, eur) }
