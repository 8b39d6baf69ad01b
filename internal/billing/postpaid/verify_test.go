package postpaid

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/billproof"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/testing/billingtest/meteringtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// Who pays afterwards can prove each bill offline as everybody can, at any time: before it is billed, when it is, and
// when its invoice is paid. The proof covers the lines, the charges and the invoice's total.
func TestProof_BillOnCredit(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	w := newWorld(t, d)
	w.set(Change{On: true, Limit: 500 * money.Unit, Reason: "trusted"})
	w.SendAll(w.p.out)
	leases := make([]*meteringtest.Lease, 3)
	wallet := ledger.Wallet(w.org, eur)
	for i := range leases {
		leases[i] = meteringtest.New(t, d, w.org, w.operator, eur) // and 100 paid in, which go back: all it uses is lent
		if err := w.Post("refund", ledger.Transfer{
			Debit:  wallet,
			Credit: ledger.StripeClearing(eur),
			Amount: 100 * money.Unit,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if own := w.Balance(wallet); own >= 0 {
		t.Fatalf("the org has %s of its own left: nothing is lent", own)
	}
	const ran = 301_337 // ms
	cost, _ := meteringtest.Cost(ran)
	for _, l := range leases {
		l.Run(ran)
	}

	verify := func(when string, back money.Nano) {
		t.Helper()
		if _, err := ledger.Link(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
		var proven money.Nano
		corrections := 0
		for _, l := range leases {
			f, err := metering.NewLeases(d).ClusterProof(t.Context(), l.Cluster)
			if err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			var saved billproof.File // as billing verify reads it
			if err := json.Unmarshal(b, &saved); err != nil {
				t.Fatal(err)
			}
			v := billproof.Verify(saved)
			if len(v.Problems) > 0 || len(v.Leases) != 1 || v.Segments == 0 || v.Waiting != 0 || v.Head == nil ||
				v.Leases[0].NotBooked != 0 || v.Leases[0].Renter != cost {
				t.Fatalf("%s: %+v", when, v)
			}
			proven += v.Leases[0].Renter
			for _, e := range saved.Entries {
				if e.Kind != "usage" {
					corrections++
				}
			}
			// It is proven, not believed: one nano-unit more in the ledger shows.
			saved.Leases[0].Billed++
			if len(billproof.Verify(saved).Problems) == 0 {
				t.Errorf("%s: a forged bill holds", when)
			}
		}
		if want := cost * money.Nano(len(leases)); proven != want {
			t.Errorf("%s: %s is proven, %s was used", when, proven, want)
		}
		if (corrections > 0) != (back > 0) {
			t.Errorf("%s: %d corrections of %s", when, corrections, back)
		}
		w.MustBalance()
	}
	verify("before it is billed", 0)

	// What a host's fault gives back is in the proof, and lowers what is charged.
	var usage id.LedgerTx
	if err := d.Pool.QueryRow(t.Context(),
		"SELECT id FROM ledger_tx WHERE kind = 'usage' AND ref = $1 ORDER BY id LIMIT 1",
		leases[0].Cluster.String()).Scan(&usage); err != nil {
		t.Fatal(err)
	}
	const back money.Nano = 12_345_678
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		e, err := ledger.Compensate(ctx, tx, usage, back, "slow disk")
		if err != nil {
			return err
		}
		_, err = ledger.Post(ctx, tx, e)
		return err
	})
	verify("after a compensation", back)

	w.pass(time.Hour)
	if err := w.charge(); err != nil {
		t.Fatal(err)
	}
	w.SendAll(w.p.out)
	verify("when it is billed", back)
	w.pass(time.Minute)
	invoice := w.fake.Billing.EndPeriod(w.customer())[0]
	w.settle()
	w.pass(2 * time.Hour)
	w.settle()
	verify("when it is paid", back)

	used := cost * money.Nano(len(leases))
	got := w.invoices()
	if len(got) != 1 || got[0].ID != invoice || got[0].State != stripe.InvoicePaid || got[0].Charged != used-back ||
		money.Nano(got[0].Total) != (used-back)/money.Cent {
		t.Fatalf("%+v: proven are %s, less %s", got, used, back)
	}
	// Stripe's clock is ahead of PostgreSQL's
	w.Exec("UPDATE postpaid_invoice SET period_start = period_start - interval '1 day'")
	lines, err := w.p.Lines(t.Context(), w.org, invoice)
	if err != nil || lines.Used != used || lines.Returned != back || lines.Charged != used-back ||
		len(lines.Items) != len(leases) {
		t.Errorf("%+v %v", lines, err)
	}
}
