package cluster_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// A project's budget that is used up ends its cluster at run_until, with the reason; the org's other clusters run on.
func TestAProjectsBudgetEndsItsClustersInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 2})
	limit := money.CostOf(price, 70_000)
	budgets := budget.New(w.d, usd)
	_, _, err := budgets.Set(w.ctx, w.renter, budget.Change{
		Project: "vision", Limits: budget.Limits{Cap: &limit},
	}, idem.Request{})
	w.must(err)
	s := spec(1, 1)
	other := w.runUp(s)
	project := "vision"
	s.Project, s.DiskGB = &project, 1
	c := w.runUp(s)
	w.tick(c)
	if c = w.get(c); c.RunUntil.Sub(*c.RunningAt) > 71*time.Second {
		t.Fatalf("paid for %s ahead", c.RunUntil.Sub(*c.RunningAt))
	}
	w.age(c, 2*time.Minute)
	w.tick(c)
	if c = w.get(c); c.State != lifecycle.Releasing || c.Reason != lifecycle.ReasonBudgetExhausted {
		t.Fatalf("%s with %q: %s", c.State, c.Reason, c.Detail)
	}
	w.rounds(c, "released", in(lifecycle.Released))
	if w.tick(other); w.get(other).State != lifecycle.Running {
		t.Errorf("the other is %s", w.get(other).State)
	}
	_, err = w.clusters[0].Rentals.Release(w.ctx, w.renter, other.ID)
	w.must(err)
	w.clean(other)
	all, err := budgets.List(w.ctx, w.renter)
	w.must(err)
	if all[0].Committed != w.get(c).CostSoFar || all[0].Committed > limit {
		t.Errorf("%s of %s committed, it cost %s", all[0].Committed, limit, w.get(c).CostSoFar)
	}
}

// failed is the error of a use case, whose result the test does not need.
func failed[T any](_ T, _ idem.Outcome, err error) error { return err }
