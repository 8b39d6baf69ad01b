package market_test

import (
	"context"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// The fee of an operator is for what is rented from now on, on the hosts they have and on those they will have.
func TestAFeeIsForNewLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.host("a", 2, "1.00")
	w.Fund(w.tenant, 100*money.Unit)
	held, err := w.quote(w.m, w.tenant, spec(1, 1, ""))
	if err != nil {
		t.Fatal(err)
	}
	plan := w.plan(w.tenant, spec(1, 1, ""))
	boss := account.Principal{User: id.New[id.User](), Admin: true}
	set := func(who account.Principal, org id.Org, ppm int, reason string) error {
		return w.tx(func(ctx context.Context, tx *db.Tx) error { return w.m.SetFee(ctx, tx, who, org, ppm, reason) })
	}
	for _, bad := range []struct {
		who    account.Principal
		org    id.Org
		ppm    int
		reason string
		kind   fault.Kind
	}{
		{account.Principal{User: boss.User, Org: w.operator}, w.operator, 0, "mine", fault.Forbidden},
		{boss, w.operator, -1, "x", fault.Invalid}, {boss, w.operator, 1_000_001, "x", fault.Invalid},
		{boss, w.operator, 1, " ", fault.Invalid},
		{boss, id.New[id.Org](), 1, "x", fault.NotFound},
	} {
		if err := set(bad.who, bad.org, bad.ppm, bad.reason); fault.KindOf(err) != bad.kind {
			t.Errorf("%d %q: %v", bad.ppm, bad.reason, err)
		}
	}
	if n, err := w.m.Fee(t.Context(), w.operator); err != nil || n != 150_000 {
		t.Fatal(n, err)
	}
	if err := set(boss, w.operator, 90_000, "a volume deal"); err != nil {
		t.Fatal(err)
	}
	if n, err := w.m.Fee(t.Context(), w.operator); err != nil || n != 90_000 {
		t.Fatal(n, err)
	}
	second := w.host("b", 1, "1.00")
	for _, h := range []id.Host{first, second} {
		offers, err := w.m.OffersOf(t.Context(), h)
		if err != nil || len(offers[h]) != 1 || offers[h][0].HostSharePPM != 910_000 {
			t.Fatalf("%+v %v", offers, err)
		}
	}
	if held.Placement.Nodes[0].HostSharePPM != 850_000 || plan.Nodes[0].HostSharePPM != 850_000 {
		t.Fatalf("%+v %+v", held.Placement, plan)
	}
	err = w.tx(func(ctx context.Context, tx *db.Tx) error { // planned before, and not held
		_, err := w.m.ClaimQuote(ctx, tx, w.of(w.tenant), spec(1, 1, ""), plan)
		return err
	})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("held at a share that is not offered any more: %v", err)
	}
	q, err := w.take(w.tenant, held.ID)
	if err != nil || q.Placement.Nodes[0].HostSharePPM != 850_000 {
		t.Errorf("the quote that was held is not rented at its share: %+v %v", q.Placement, err)
	}
}
