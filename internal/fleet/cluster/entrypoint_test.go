package cluster_test

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/idem"
)

// A cluster with an entry point is refused while no host's agent can replace an image's, and placed as soon as one can:
// the change of its capabilities alone is noticed.
func TestRent_EntrypointReachesTheHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	s := spec(1, 1)
	s.Entrypoint, s.Command, s.User = []string{"bash", "-c"}, []string{"nvidia-smi"}, "app:users"
	_, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s}, idem.Request{})
	why, _ := fault.From(err).Extra["explain"].([]client.Exclusion)
	if !fault.Is(err, fault.NoCapacity) || len(why) != 1 || why[0].Excluded != 2 {
		t.Fatalf("%v %+v", err, why)
	}
	w.exec(`INSERT INTO host_agent (host_id, capabilities) VALUES ($1, '{scratch}')
		ON CONFLICT (host_id) DO UPDATE SET capabilities = excluded.capabilities`, w.hosts[1].id)
	w.exec("UPDATE host_agent SET capabilities = '{scratch,entrypoint,user}' WHERE host_id = $1", w.hosts[1].id)
	c := w.rent(s)
	if h := w.hostOf(c, 0); h.id != w.hosts[1].id {
		t.Fatalf("on %s", h.id)
	}
	d := w.desired(w.clusters[0], w.hosts[1].id)
	if len(d.Leases) != 1 || !slices.Equal(d.Leases[0].Entrypoint, s.Entrypoint) ||
		!slices.Equal(d.Leases[0].Command, s.Command) || d.Leases[0].User != s.User {
		t.Errorf("%+v", d.Leases)
	}
}
