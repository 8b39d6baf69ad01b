package cluster_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// uploader is a world with one host of 8 GPUs and room for one volume, and a spec of all GPUs that writes the volume.
func uploader(t *testing.T, c worldConfig) (*world, *fakeHost, market.Spec) {
	t.Helper()
	c.hosts, c.gpus = 1, 8
	w := newWorld(t, c)
	_, vol := w.volume(5)
	w.mountVolumes()
	w.scratches(40)
	s := spec(1, 8)
	s.ScratchGB = 20
	s.Mounts = []client.Mount{{Path: "/data", Volume: vol.ID, Mode: agentapi.MountRW}}
	return w, w.hosts[0], s
}

func (w *world) claims() (n int) {
	w.t.Helper()
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT count(*) FROM gpu_claim WHERE ended_at IS NULL").Scan(&n))
	return n
}

// uploading releases a cluster and lets its host report twice: it stops, and it uploads.
func (w *world) uploading(h *fakeHost, c cluster.Cluster) cluster.Cluster {
	w.t.Helper()
	h.uploads = true
	_, err := w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)
	w.must(err)
	for range 3 {
		w.must(h.sync(w.ctx, 0))
	}
	w.tick(c)
	return w.get(c)
}

// endedAgo moves the end of a cluster's leases that far into the past, for those whom it does not bill.
func (w *world) endedAgo(c cluster.Cluster, ago time.Duration) {
	w.t.Helper()
	w.exec("UPDATE lease SET ended_at = ended_at - $2::bigint * interval '1 ms', settled_at = clock_timestamp() "+
		"WHERE cluster_id = $1 AND ended_at IS NOT NULL", c.ID, ago.Milliseconds())
}

// GPUs are free for others as soon as the containers are gone, and the end of the upload changes nothing for those who
// have them by then.
func TestUpload_HoldsNoGPUs(t *testing.T) {
	t.Parallel()
	w, h, s := uploader(t, worldConfig{starts: startRules})
	first := w.runUp(s)
	got := w.uploading(h, first)
	u := got.Nodes[0].Uploading
	if w.claims() != 0 || got.State != lifecycle.Releasing || u == nil || !u.GPUsFree ||
		u.EndsBy.Sub(u.Since) != agentapi.VolumeFlushMaxS*time.Second || got.Nodes[0].Progress.Uploads.Bytes != 7000 {
		t.Fatalf("%d GPUs claimed, %s, %+v", w.claims(), got.State, u)
	}
	other := w.SignUp("other")
	w.Fund(other.Org, 100*money.Unit)
	rent := func(by account.Principal, s market.Spec) (cluster.Cluster, error) {
		c, _, err := w.clusters[0].Rentals.Rent(w.ctx, by, cluster.RentRequest{Spec: s}, idem.Request{})
		return c, err
	}
	big, small := spec(1, 8), spec(1, 8)
	big.ScratchGB, small.ScratchGB = 40, 30 // the volume's room is kept, the scratch of 20 GB is not
	if _, err := rent(other, big); err == nil {
		t.Error("the disk that the upload needs was rented")
	}
	second, err := rent(other, small)
	if err != nil {
		t.Fatalf("GPUs whose former lease uploads are not free: %v", err)
	}
	w.must(h.sync(w.ctx, 0))
	h.uploads = false
	w.rounds(first, "released", in(lifecycle.Released))
	if n := w.claims(); n != 8 {
		t.Errorf("the new lease has %d of 8 GPUs after the end of the upload", n)
	}
	_, err = w.clusters[0].Rentals.Release(w.ctx, other, second.ID)
	w.must(err)
	w.clean(first)
	if n := w.counted(); n > 8*240 {
		t.Errorf("%d GPU-seconds count of two starts that held their GPUs for a moment", n)
	}
	if big, err := rent(other, big); err != nil {
		t.Errorf("the disk is not free after the upload: %v", err)
	} else if _, err := w.clusters[0].Rentals.Release(w.ctx, other, big.ID); err != nil {
		t.Error(err)
	}
}

// An agent that does not report when GPUs are free holds them until the upload is done. That counts as a start does,
// while it goes on and after it.
func TestUpload_OfAnOldAgentCounts(t *testing.T) {
	t.Parallel()
	w, h, s := uploader(t, worldConfig{starts: startRules})
	h.holds = true
	c := w.runUp(s)
	w.addHost(1, 1)
	if got := w.uploading(h, c); w.claims() != 8 || got.Nodes[0].Uploading == nil || got.Nodes[0].Uploading.GPUsFree {
		t.Fatalf("%d GPUs claimed, %+v", w.claims(), got.Nodes[0].Uploading)
	}
	w.endedAgo(c, 29*time.Minute)
	if w.refusedStart(w.renter, spec(1, 1)) == nil {
		t.Error("another start while 8 GPUs are held for 28 minutes")
	}
	h.uploads = false
	w.rounds(c, "released", in(lifecycle.Released))
	if n := w.counted(); n < 27*60*8 || n > 29*60*8 {
		t.Errorf("%d GPU-seconds count", n)
	}
	if w.refusedStart(w.renter, spec(1, 1)) == nil {
		t.Error("another start after 8 GPUs were held for 28 minutes")
	}
}

// The disk that an upload keeps counts as the GPUs that no one else can rent with scratch meanwhile: while it goes on,
// and after it.
func TestUpload_DiskCounts(t *testing.T) {
	t.Parallel()
	w, h, s := uploader(t, worldConfig{starts: startRules})
	c := w.runUp(s)
	w.uploading(h, c)
	var gpus float64
	w.must(w.d.Pool.QueryRow(w.ctx, `SELECT 8.0 * l.flush_gb / h.scratch_gb FROM lease l JOIN host h ON h.id = l.host_id
		WHERE l.cluster_id = $1`, c.ID).Scan(&gpus))
	want := int64(28 * 60 * gpus)
	if want < 1000 {
		t.Fatalf("the upload keeps what %.1f GPUs are worth", gpus)
	}
	w.addHost(1, 1)
	w.endedAgo(c, 29*time.Minute)
	w.exec("UPDATE start_hold SET gpu_ms = $1, value = 1000000000000", startRules.Free*1000-want*900)
	if f := w.refusedStart(w.renter, spec(1, 1)); f != nil {
		t.Fatalf("the GPUs and the disk were free until a moment ago: %v", f)
	}
	w.exec("UPDATE lease SET gpus_free_at = gpus_free_at - interval '29 minutes' WHERE cluster_id = $1", c.ID)
	if w.refusedStart(w.renter, spec(1, 1)) == nil {
		t.Error("another start while the disk is kept")
	}
	w.exec("DELETE FROM start_hold")
	h.uploads = false
	w.rounds(c, "released", in(lifecycle.Released))
	if n := w.counted(); n < want*9/10 || n > want*11/10 {
		t.Errorf("%d GPU-seconds count, want %d", n, want)
	}
}

// A host that is lost while it uploads does not keep the cluster from its end, and a lease that it forgot while it was
// away holds nothing.
func TestUpload_EndsWithItsHost(t *testing.T) {
	t.Parallel()
	w, h, s := uploader(t, worldConfig{})
	c := w.runUp(s)
	w.uploading(h, c)
	w.exec("UPDATE host_status SET last_sync_at = last_sync_at - interval '1 hour' WHERE host_id = $1", h.id)
	w.exec("UPDATE host SET created_at = created_at - interval '2 hours' WHERE id = $1", h.id)
	w.tick(c)
	w.tick(c)
	if got := w.get(c); got.State != lifecycle.Released {
		t.Fatalf("%s while its host is lost", got.State)
	}
	h.uploads = false
	w.clean(c)
}

// What was lost after the release is reported to the renter, too.
func TestUpload_LossAfterTheReleaseIsShown(t *testing.T) {
	t.Parallel()
	w, h, s := uploader(t, worldConfig{})
	c := w.runUp(s)
	w.uploading(h, c)
	for _, r := range h.runs {
		r.NotUploaded = []agentapi.NotUploaded{{Name: "out", Detail: "nothing was uploaded any more"}}
	}
	w.must(h.sync(w.ctx, 0))
	w.must(h.sync(w.ctx, 0))
	h.uploads = false
	w.rounds(c, "released", in(lifecycle.Released))
	n := 0
	kinds, text := w.events(c)
	for _, k := range kinds {
		if k == "not_uploaded" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d events in %s", n, text)
	}
	w.clean(c)
}
