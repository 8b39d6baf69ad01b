package cluster_test

import (
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// Credit that was paid in must not come out again as a payout to the party that paid it.
func TestNobodyRentsFromThemselves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 2})
	w.Fund(w.operator.Org, 100*money.Unit)
	_, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.operator, cluster.RentRequest{Spec: spec(2, 1)}, idem.Request{})
	f := fault.From(err)
	why, _ := f.Extra["explain"].([]client.Exclusion)
	if f.Kind != fault.NoCapacity || len(why) != 1 || why[0].Excluded != 2 {
		t.Fatalf("%v %+v, want both hosts left out", err, why)
	}
	w.noClaims()
	w.rent(spec(2, 1)) // others do
}
