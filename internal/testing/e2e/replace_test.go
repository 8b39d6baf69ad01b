package e2e

import (
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// The container that holds a node's network dies, which is its host's fault: another host takes the rank and runs the
// command again, and the bill is the windows of both, less what is credited.
func TestAnotherHostTakesARank(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 10*money.Unit)
	s := p.endless()
	dear := 100 * money.Micro(money.Unit/1000) // whatever another test makes of the prices
	s.Nodes, s.OnNodeFailure, s.MaxPricePerHour = 1, "replace", &dear
	c := r.run(t, s)
	r.awaitLine(t, c, 0, "step ")
	first := c.Nodes[0]
	p.node(t, c, 0).killContainer("guest")
	killed := time.Now()
	eventually(t, "another host runs the rank", func() bool {
		now, err := r.Clusters.Get(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now.State.Ended() {
			t.Fatalf("%s: %s\n%s", now.State, now.Detail, r.timeline(t, c))
		}
		c = now
		return now.State == client.Running && now.Epoch >= 2 && now.Nodes[0].HostID != first.HostID
	})
	t.Logf("%s from the death to the command on the other host", time.Since(killed).Round(100*time.Millisecond))
	if n := c.Nodes[0]; n.HostID == first.HostID || n.Address != first.Address || n.ID != first.ID || c.Replacing != nil {
		t.Errorf("rank 0 was %+v and is %+v\n%s", first, n, r.timeline(t, c))
	}
	if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	u := r.settle(t, c)
	r.owes(t, u)
	if len(u.Credits) != 1 || u.Credits[0].Reason != "guest_died" || u.Credits[0].HostID != first.HostID ||
		u.Credits[0].HostID == (id.Host{}) {
		t.Errorf("credited: %+v\n%s", u.Credits, r.timeline(t, c))
	}
}
