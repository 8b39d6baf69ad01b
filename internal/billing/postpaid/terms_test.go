package postpaid

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// What is held on credit never exceeds the limit and the org's own money, whatever is rented at the same time and
// however the limit moves meanwhile.
func TestTerms_LimitHolds(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(9, seed))
		w := newWorld(t, d)
		own := money.Nano(r.Int64N(int64(5 * money.Unit)))
		limit := money.Unit + money.Nano(r.Int64N(int64(20*money.Unit)))
		if own > 0 {
			w.Tx(func(ctx context.Context, tx *db.Tx) error {
				_, err := ledger.Post(ctx, tx, ledger.Entry{
					Kind: "topup",
					Key:  "topup:" + w.org.String(),
					Transfers: []ledger.Transfer{
						{Debit: ledger.StripeClearing(eur), Credit: ledger.Wallet(w.org, eur), Amount: own}},
				})
				return err
			})
		}
		w.set(Change{On: true, Limit: limit, Reason: "trusted"})
		var wg sync.WaitGroup
		rates := make([]money.Micro, 12)
		for i := range rates {
			rates[i] = money.Micro(1 + r.Int64N(6_000_000))
		}
		for _, rate := range rates {
			wg.Go(func() {
				if _, err := w.rent(rate); err != nil && fault.From(err).Kind != fault.InsufficientFunds {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		got := w.terms()
		if held := own - w.Balance(ledger.Wallet(w.org, eur)); held > own+limit || got.Used > limit || got.Left != own+
			limit-held || got.Used != max(0, held-own) {
			t.Errorf("seed %d: %s of its own, a limit of %s: %s is held, %+v", seed, own, limit, held, got)
		}

		// Lowered below what is used: nothing more is lent, and what is held stays.
		less := w.set(Change{On: true, Limit: money.Unit, Reason: "less"})
		if got.Used > money.Unit {
			if less.Left != 0 || less.Used != got.Used {
				t.Errorf("seed %d: %+v", seed, less)
			}
			if _, err := w.rent(1_000_000); err == nil || fault.From(err).Kind != fault.InsufficientFunds {
				t.Errorf("seed %d: rented beyond a lowered limit: %v", seed, err)
			}
		}
		off := w.set(Change{Reason: "over"})
		if off.State != Ending || off.Limit != 0 || off.Left != max(0, w.Balance(ledger.Wallet(w.org, eur))) {
			t.Errorf("seed %d: %+v", seed, off)
		}
	}
	w := newWorld(t, d)
	w.MustBalance()
}

// Only an admin decides, with a limit and a reason; the org is notified each time, and the audit log has it.
func TestTerms_AdminOnly(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	w := newWorld(t, d)
	if got := w.terms(); got.State != Off || got.Limit != 0 || got.Left != 0 {
		t.Errorf("%+v", got)
	}
	try := func(who account.Principal, c Change) error {
		return billingtest.Err(w.p.Set(t.Context(), who, w.org, c, idem.Request{}))
	}
	for name, c := range map[string]struct {
		who    account.Principal
		change Change
		want   fault.Kind
	}{
		"a renter":        {account.Principal{Org: w.org}, Change{On: true, Limit: money.Unit, Reason: "x"}, fault.Forbidden},
		"no limit":        {w.boss, Change{On: true, Reason: "x"}, fault.Invalid},
		"too much":        {w.boss, Change{On: true, Limit: MaxLimit + 1, Reason: "x"}, fault.Invalid},
		"no reason":       {w.boss, Change{On: true, Limit: money.Unit}, fault.Invalid},
		"blank as reason": {w.boss, Change{Reason: "  "}, fault.Invalid},
	} {
		if err := try(c.who, c.change); err == nil || fault.From(err).Kind != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.p.All(t.Context(), account.Principal{Org: w.org}, w.org, 10); err == nil {
		t.Error("a renter sees everybody's terms")
	}
	w.set(Change{Reason: "was off anyway"})
	w.set(Change{On: true, Limit: 5 * money.Unit, Reason: "contract 17"})
	w.set(Change{On: true, Limit: 6 * money.Unit, Reason: "grown"})
	w.set(Change{Reason: "over"})
	w.set(Change{On: true, Limit: 2 * money.Unit, Reason: "again"})
	var notices, trail int
	if err := d.Pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM notice WHERE org_id = $1), (SELECT count(*) "+
		"FROM audit_event WHERE object = $2 AND action = 'billing.postpaid')",
		w.org, w.org.String()).Scan(&notices, &trail); err != nil || notices != 4 || trail != 5 {
		t.Errorf("%d notices, %d in the trail: %v", notices, trail, err)
	}
}

// The list shows the same of an org as its own terms.
func TestTerms_ListEqualsTerms(t *testing.T) {
	t.Parallel()
	w := newWorldPaying(t, dbtest.New(t), "pm_card_chargeCustomerFail")
	w.invoiced()
	w.settle()
	want := w.terms()
	all, err := w.p.All(t.Context(), w.boss, id.Org{}, 10)
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v %v", all, err)
	}
	if got := all[0]; got.Org != w.org || got.Owed != 10*money.Unit || got.Owed != want.Owed || got.Used != want.Used ||
		got.Left != want.Left || got.Limit != want.Limit {
		t.Errorf("%+v, want %+v", got, want)
	}
}
