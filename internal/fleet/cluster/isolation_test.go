package cluster_test

import (
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/idem"
)

// A cluster that needs gVisor and an enforced disk limit is refused, with the names of both, where no host has them. A
// host that has them gets both in its desired state.
func TestWhatIsAskedOfAHostReachesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	s := spec(1, 1)
	s.Runtime, s.DiskLimited = agentapi.RuntimeRunsc, true
	_, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s}, idem.Request{})
	why, _ := fault.From(err).Extra["explain"].([]client.Exclusion)
	if !fault.Is(err, fault.NoCapacity) || len(why) != 1 || why[0].Constraint != "runtime = runsc" ||
		why[0].Excluded != 2 {
		t.Fatalf("%v %+v", err, why)
	}
	w.exec("UPDATE host SET runtimes = '{runc,runsc}' WHERE id = $1", w.hosts[1].id)
	c := w.runUp(s)
	if h := w.hostOf(c, 0); h.id != w.hosts[1].id {
		t.Fatalf("on %s", h.id)
	}
	d := w.desired(w.clusters[0], w.hosts[1].id)
	if len(d.Leases) != 1 || d.Leases[0].Runtime != agentapi.RuntimeRunsc || !d.Leases[0].DiskLimited {
		t.Errorf("%+v", d.Leases)
	}
}
