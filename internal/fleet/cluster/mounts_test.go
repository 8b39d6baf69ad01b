package cluster_test

import (
	"bytes"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/idem"
)

// volume creates a volume of the renter's.
func (w *world) volume(gb int64) (*volume.Volumes, volume.Volume) {
	w.t.Helper()
	folder, err := store.OpenFolder(w.t.TempDir(), "http://muster.test", bytes.Repeat([]byte{7}, 32))
	w.Must(err)
	vols := volume.New(w.d, folder, volume.Config{Currency: "USD", Box: w.Box()})
	v, _, err := vols.Catalog.Create(w.ctx, w.renter, volume.NewVolume{Name: "data", SizeGB: gb}, idem.Request{})
	w.Must(err)
	return vols, v
}

// mountVolumes lets all hosts mount volumes.
func (w *world) mountVolumes() {
	for _, h := range w.hosts {
		w.exec(`INSERT INTO host_agent (host_id, capabilities) VALUES ($1, '{volumes}')
			ON CONFLICT (host_id) DO UPDATE SET capabilities = excluded.capabilities`, h.id)
	}
}

// scratches sets the size of all hosts' scratches.
func (w *world) scratches(gb int) { w.exec(`UPDATE host SET scratch_gb = $1`, gb) }

// A cluster with a volume runs only on a host that can mount it, is its only writer, and its host gets the key.
func TestRentWithAVolume(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 2})
	_, vol := w.volume(5)
	s := spec(1, 1)
	s.Mounts = []client.Mount{{Path: "/data", Volume: vol.ID, Mode: agentapi.MountRW,
		Snapshot: client.SnapshotPolicy{EveryS: 600, OnEnd: true}}}
	if _, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s},
		idem.Request{}); !fault.Is(err, fault.NoCapacity) {
		t.Fatalf("no host can mount volumes: %v", err)
	}
	w.mountVolumes()
	if _, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s},
		idem.Request{}); !fault.Is(err, fault.NoCapacity) {
		t.Fatalf("no host has room for the volume: %v", err)
	}
	w.scratches(10) // for one volume of 5 GB with its clones, not for two
	c := w.runUp(s)
	var got []agentapi.Mount
	for _, h := range w.hosts {
		for _, l := range w.desired(w.clusters[0], h.id).Leases {
			got = append(got, l.Mounts...)
		}
	}
	if len(got) != 1 || got[0].Path != "/data" || got[0].Volume != vol.ID.String() || got[0].SizeLimit != 5*volume.GB ||
		len(got[0].Key) != 32 || got[0].Snapshot.EveryS != 600 || !got[0].Snapshot.OnEnd || got[0].SnapshotNow != "" {
		t.Fatalf("%+v", got)
	}
	_, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s}, idem.Request{})
	if f := fault.From(err); f == nil || f.Kind != fault.Conflict || len(f.Fields) != 1 ||
		f.Fields[0].Location != "mounts[0].volume" {
		t.Fatalf("a second writer: %v", err)
	}
	s.Mounts[0].Mode = agentapi.MountRO
	reader := w.runUp(s)
	// What was released and never opened by a host is free once the cluster has ended.
	for _, x := range []cluster.Cluster{c, reader} {
		if _, err := w.clusters[0].Rentals.Release(w.ctx, w.renter, x.ID); err != nil {
			t.Fatal(err)
		}
	}
	w.clean(c)
	s.Mounts[0].Mode = agentapi.MountRW
	w.runUp(s)
	// Another organisation's volume does not exist.
	s.Mounts[0].Volume = volume.Volume{}.ID
	if _, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s},
		idem.Request{}); !fault.Is(err, fault.Invalid) {
		t.Fatalf("no volume: %v", err)
	}
}

// A lease that has ended has the keys of the volumes that it writes in its host's desired state, until its session is
// closed: for that host only, and not for readers.
func TestALeaseThatHasEndedKeepsItsKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	vols, vol := w.volume(5)
	w.mountVolumes()
	w.scratches(10)
	s := spec(1, 1)
	s.Mounts = []client.Mount{{Path: "/data", Volume: vol.ID, Mode: agentapi.MountRW}}
	writer := w.runUp(s)
	s.Mounts[0].Mode = agentapi.MountRO
	reader := w.runUp(s)
	sessions := map[*fakeHost]agentapi.VolumeRequest{}
	for _, h := range w.hosts {
		l := w.desired(w.clusters[0], h.id).Leases[0]
		r := agentapi.VolumeRequest{LeaseRef: l.LeaseRef, Volume: vol.ID.String(), Op: agentapi.VolumeOpen,
			Open: &agentapi.OpenVolume{Mode: l.Mounts[0].Mode}}
		reply := vols.Hosts.Serve(w.ctx, h.id, r)
		if reply.Error != nil {
			t.Fatal(reply.Error)
		}
		r.Session = reply.Open.Session
		sessions[h] = r
	}
	at := w.hostOf(writer, 0)
	key := w.desired(w.clusters[0], at.id).Leases[0].Mounts[0].Key
	for _, c := range []cluster.Cluster{writer, reader} {
		if _, err := w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID); err != nil {
			t.Fatal(err)
		}
	}
	ending := func(what string, want int) {
		t.Helper()
		for _, h := range w.hosts {
			d := w.desired(w.clusters[0], h.id)
			if h != at && len(d.Ending) > 0 || h == at && len(d.Ending) != want {
				t.Fatalf("%s: %+v", what, d.Ending)
			}
			for _, l := range d.Ending {
				if l.LeaseRef != sessions[h].LeaseRef || len(l.Keys) != 1 || l.Keys[0].Volume != vol.ID.String() ||
					!bytes.Equal(l.Keys[0].Key, key) {
					t.Fatalf("%s: %+v", what, l)
				}
			}
		}
	}
	ending("after the release", 1)
	r := sessions[at]
	r.Op, r.Open, r.Close = agentapi.VolumeClose, nil, &agentapi.CloseVolume{}
	if reply := vols.Hosts.Serve(w.ctx, at.id, r); reply.Error != nil {
		t.Fatal(reply.Error)
	}
	ending("after its session was closed", 0)
}
