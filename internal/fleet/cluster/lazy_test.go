package cluster_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/idem"
)

// A lazy volume takes the room of its cache on hosts that can mount it, and every node gets the key.
func TestRentWithALazyVolume(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	folder, err := store.OpenFolder(t.TempDir(), "http://muster.test", bytes.Repeat([]byte{7}, 32))
	w.Must(err)
	vols := volume.New(w.d, folder, volume.Config{Currency: "USD", Box: w.Box()})
	vol, _, err := vols.Create(w.ctx, w.renter, volume.NewVolume{Name: "data", SizeGB: 5000}, idem.Request{})
	w.Must(err)
	s := spec(2, 1)
	s.Mounts = []client.Mount{{Path: "/data", Volume: vol.ID, Mode: agentapi.MountRO, Lazy: true, CacheGB: 7}}
	for _, h := range w.hosts {
		w.exec(`INSERT INTO host_agent (host_id, capabilities) VALUES ($1, '{volumes}')
			ON CONFLICT (host_id) DO UPDATE SET capabilities = excluded.capabilities`, h.id)
		w.exec(`UPDATE host SET scratch_gb = 10 WHERE id = $1`, h.id)
	}
	_, _, err = w.clusters[0].Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s}, idem.Request{})
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
	if err := vols.Delete(w.ctx, w.renter, vol.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("a volume in use is deleted: %v", err)
	}
}
