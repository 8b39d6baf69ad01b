package cluster_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/idem"
)

// A lazy volume takes the room of its cache on hosts that can mount it, and every node gets the key.
func TestRentWithALazyVolume(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	vols, vol := w.volume(5000)
	s := spec(2, 1)
	s.Mounts = []client.Mount{{Path: "/data", Volume: vol.ID, Mode: agentapi.MountRO, Lazy: true, CacheGB: 7}}
	w.mountVolumes()
	w.scratches(10)
	_, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s}, idem.Request{})
	if !fault.Is(err, fault.NoCapacity) || !strings.Contains(explained(err), "can mount lazy volumes") {
		t.Fatalf("no host can mount it: %v %s", err, explained(err))
	}
	w.exec(`UPDATE host_agent SET capabilities = '{volumes,volume_lazy}'`)
	c := w.runUp(s)
	n := 0
	for _, h := range w.hosts {
		for _, l := range w.desired(w.clusters[0], h.id).Leases {
			if len(l.Mounts) > 0 || len(l.Lazy) != 1 {
				t.Fatalf("%+v, %+v", l.Mounts, l.Lazy)
			}
			m := l.Lazy[0]
			if m.Path != "/data" || m.Volume != vol.ID.String() || m.Name != "data" || m.CacheBytes != 7e9 || len(m.Key) != 32 {
				t.Errorf("%+v", m)
			}
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d nodes", n)
	}
	var lazy bool
	w.Must(w.d.Pool.QueryRow(w.ctx, `SELECT lazy FROM volume_mount WHERE cluster_id = $1`, c.ID).Scan(&lazy))
	if !lazy {
		t.Error("the mount's row does not say that it is read on demand")
	}
	if err := vols.Catalog.Delete(w.ctx, w.renter, vol.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("a volume in use is deleted: %v", err)
	}
}
