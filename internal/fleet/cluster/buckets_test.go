package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/data/bucket"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// A cluster with a bucket runs only on a host that can mount it, and its host gets the credentials, again when they are
// replaced. A bucket in use is not deleted.
func TestRentWithABucket(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 2})
	store := s3test.Start(t)
	buckets := bucket.New(w.d, bucket.Config{Box: w.Box(), AnyAddress: true, Bus: bus.New(nil, nil)})
	key := bucket.Credentials{AccessKeyID: store.Config.Access, Secret: store.Config.Secret}
	create := func(name, mode string) bucket.Bucket {
		b, _, err := buckets.Create(w.ctx, w.renter, bucket.NewBucket{Name: name, Mode: mode, Key: key,
			Target: bucket.Target{Endpoint: store.Config.Endpoint, Bucket: store.Config.Bucket, Prefix: "runs"}}, idem.Request{})
		w.Must(err)
		return b
	}
	results, inputs := create("results", "rw"), create("inputs", "ro")
	s := spec(1, 1)
	s.Mounts = []client.Mount{{Path: "/results", Bucket: results.ID, Mode: agentapi.MountRW, CacheGB: 10}}
	rent := func() error {
		_, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s}, idem.Request{})
		return err
	}
	if err := rent(); !fault.Is(err, fault.NoCapacity) || !strings.Contains(explained(err), "can mount buckets") {
		t.Fatalf("no host can mount buckets: %v %s", err, explained(err))
	}
	for _, h := range w.hosts {
		w.exec(`INSERT INTO host_agent (host_id, capabilities) VALUES ($1, '{buckets}')
			ON CONFLICT (host_id) DO UPDATE SET capabilities = excluded.capabilities`, h.id)
		w.exec(`UPDATE host SET scratch_gb = 40 WHERE id = $1`, h.id)
	}
	s.Mounts[0].Bucket = inputs.ID
	wantInvalid(t, "a writer of a bucket for reading", rent(), "mounts[0].mode")
	s.Mounts[0].Bucket = results.ID
	c := w.runUp(s)
	got := w.bucketsOf()
	if len(got) != 1 || got[0].Path != "/results" || got[0].Bucket != results.ID.String() || got[0].Prefix != "runs" ||
		got[0].CacheBytes != 10e9 || got[0].Credentials != (agentapi.BucketCredentials{Version: 1,
		AccessKeyID: key.AccessKeyID, Secret: key.Secret}) {
		t.Fatalf("%+v", got)
	}
	if err := buckets.Delete(w.ctx, w.renter, results.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("a bucket in use is deleted: %v", err)
	}
	users, err := buckets.Users(w.ctx, w.renter.Org)
	w.Must(err)
	if u := users[results.ID]; len(u) != 1 || u[0].Cluster != c.ID || u[0].Mode != "rw" {
		t.Errorf("%+v", users)
	}
	before := w.revisions()
	_, err = buckets.Rotate(w.ctx, w.renter, results.ID, key)
	w.Must(err)
	if after := w.revisions(); after != before+1 {
		t.Errorf("the revisions of hosts sum up to %d, before %d", after, before)
	}
	if got := w.bucketsOf(); len(got) != 1 || got[0].Credentials.Version != 2 {
		t.Errorf("after the rotation: %+v", got)
	}
	_, err = w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)
	w.Must(err)
	w.clean(c)
	w.Must(buckets.Delete(w.ctx, w.renter, results.ID))
}

func wantInvalid(t *testing.T, what string, err error, field string) {
	t.Helper()
	f := fault.From(err)
	if f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Location != field {
		t.Errorf("%s: %v, want a fault of %s", what, err, field)
	}
}

// bucketsOf returns the buckets of all hosts' leases.
func (w *world) bucketsOf() (out []agentapi.BucketMount) {
	for _, h := range w.hosts {
		for _, l := range w.desired(w.clusters[0], h.id).Leases {
			out = append(out, l.Buckets...)
		}
	}
	return out
}

func (w *world) revisions() (sum int64) {
	w.t.Helper()
	w.Must(w.d.Pool.QueryRow(w.ctx, `SELECT sum(revision) FROM host`).Scan(&sum))
	return sum
}

// explained returns what a fault says of the hosts that were excluded.
func explained(err error) string {
	if f := fault.From(err); f != nil {
		return fmt.Sprint(f.Extra["explain"])
	}
	return ""
}
