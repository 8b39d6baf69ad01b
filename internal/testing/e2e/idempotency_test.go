package e2e

import (
	"fmt"
	"sync"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

// A request that is repeated under its key takes effect once and returns the same answer each time; so do two that
// race.
func TestARentIsRepeatable(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 0)
	body := func(name string) string {
		return fmt.Sprintf(`{"name":%q,"nodes":1,"gpus_per_node":1,"image":%q,"command":["exit","0"],"disk_gb":1}`, name,
			p.DemoImage)
	}
	rent := func(key, name string) reply {
		return r.call(t, "POST", "/clusters", body(name), "Idempotency-Key", key)
	}
	want(t, "no funds", rent("k1", "a"), 402, fault.InsufficientFunds)
	r.topUp(t, 10*money.Unit)
	first := rent("k1", "a") // the failure has freed the key
	want(t, "after the top-up", first, 202, "")
	for range 3 {
		if again := rent("k1", "a"); again.status != 202 || again.ID != first.ID {
			t.Errorf("again: %d %s", again.status, again.body)
		}
	}
	want(t, "another body", rent("k1", "b"), 422, fault.IdemMismatch)

	const twins = 8
	answers := make([]reply, twins)
	var group sync.WaitGroup
	for i := range twins {
		group.Go(func() { answers[i] = rent("k2", "twin") })
	}
	group.Wait()
	for _, a := range answers {
		if a.status != 202 || a.ID != answers[0].ID {
			t.Errorf("twins: %d %s, %d %s", answers[0].status, answers[0].ID, a.status, a.body)
		}
	}
	stranger := p.renter(t, 10*money.Unit)
	other := stranger.call(t, "POST", "/clusters", body("a"), "Idempotency-Key", "k1")
	if other.status != 202 || other.ID == first.ID {
		t.Errorf("another org under the same key: %d %s", other.status, other.body)
	}
	page, err := r.Clusters.List(t.Context(), client.ClustersQuery{})
	if err != nil || len(page.Items) != 2 {
		t.Fatalf("%d clusters: %v", len(page.Items), err)
	}
	var usages []client.Usage
	for _, c := range page.Items {
		r.await(t, c, client.Released)
		usages = append(usages, r.settle(t, c))
	}
	r.owes(t, usages...)

	top := func() reply { return r.call(t, "POST", "/billing/topups", `{"amount":"5"}`, "Idempotency-Key", "pay") }
	if a, b := top(), top(); a.status != 201 || a.ID != b.ID {
		t.Errorf("top-up twice: %s %s", a.body, b.body)
	}
	r.paid += 5 * money.Unit
	r.owes(t, usages...)
}
