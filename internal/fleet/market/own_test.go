package market_test

import (
	"context"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// TestNobodyRentsFromThemselves: an organisation's own hosts are no supply for it, however cheap, and the explanation
// says so.
func TestNobodyRentsFromThemselves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("own", 4, "1.00")
	w.Fund(w.operator, 100*money.Unit)

	_, err := w.quote(w.m, w.operator, spec(1, 1, ""))
	f := fault.From(err)
	why, _ := f.Extra["explain"].([]client.Exclusion)
	if f.Kind != fault.NoCapacity || len(why) != 1 || why[0] != (client.Exclusion{
		Constraint: "not your own: an organisation cannot rent from itself",
		Excluded:   1,
	}) {
		t.Fatalf("%v %+v", err, why)
	}
	if r, _ := f.Extra["relaxations"].([]client.Relaxation); len(r) != 0 {
		t.Errorf("proposed %+v: nothing makes one's own hosts rentable", r)
	}

	plan := w.plan(w.tenant, spec(1, 1, "")) // made for another organisation
	err = w.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := w.m.ClaimQuote(ctx, tx, w.of(w.operator), spec(1, 1, ""), plan)
		return err
	})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("a quote on the operator's own host: %v", err)
	}

	other := w.org()
	mine := w.operator
	w.operator = other
	theirs := w.host("dear", 4, "9.00")
	q, err := w.quote(w.m, mine, spec(1, 1, ""))
	if err != nil || q.Placement.Nodes[0].Host != theirs {
		t.Fatalf("%+v %v, want the other operator's host", q.Placement, err)
	}
	// A quote that was held before the rule, or before the host changed hands, is not rented either.
	w.exec("UPDATE host SET org_id = $1 WHERE id = $2", mine, theirs)
	_, err = w.take(mine, q.ID)
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("rented from themselves: %v", err)
	}
}

func TestAnAskNamesItsRenter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 1, "1.00")
	err := w.m.Planning(t.Context(), market.Request{Nodes: 1, GPUs: 1}, func(context.Context, market.Placement,
		error) error {
		return nil
	})
	if err == nil {
		t.Error("placed for nobody")
	}
}

// plan is what renter would be offered; nothing is claimed.
func (w *world) plan(renter id.Org, s market.Spec) (plan market.Placement) {
	w.t.Helper()
	err := w.m.Planning(w.t.Context(), w.request(renter, s), func(_ context.Context, p market.Placement,
		refused error) error {
		plan = p
		return refused
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return plan
}
