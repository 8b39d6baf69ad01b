package e2e

import (
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// A cluster shows how its ranks reach each other, and what they measured between them.
func TestPathsAreShown(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 10*money.Unit)
	c := r.run(t, p.endless())
	var last client.Cluster
	eventually(t, "both ranks say how they reach the other", func() bool {
		var err error
		last, err = r.Clusters.Get(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range last.Nodes {
			if len(n.Paths) != 1 || n.Paths[0].Rank != 1-i || n.Paths[0].Path != "lan" || n.Paths[0].MTU < 1280 {
				return false
			}
		}
		return true
	})
	if n := last.Network; n.BusbwGbps <= 0 || len(n.PairGbps) != 2 || n.PairGbps[0][1] <= 0 || n.RTTMicros[1][0] <= 0 {
		t.Errorf("measured: %+v", n)
	}
	r.enough(t, c)
	r.owes(t, r.trained(t, c))
}
