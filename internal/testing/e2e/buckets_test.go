package e2e

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// writesResults is the job of the recipe "Results to your own bucket" in docs/data.md: it writes each result elsewhere
// first, and copies it when it is whole.
const writesResults = `$| = 1; mkdir "/tmp";
open(my $in, "<", "/results/input.txt") or die "read: $!";
my $x = <$in>; close $in;
for my $i (1 .. 3) {
  open(my $f, ">", "/tmp/result-$i") or die "write: $!";
  print $f "result $i of $x"; close $f or die "close: $!";
  open($f, "<", "/tmp/result-$i") or die "read: $!";
  open(my $to, ">", "/results/result-$i") or die "copy: $!";
  my $whole = <$f>;
  print $to $whole; close $to or die "copy: $!";
}
print "done\n";
sleep 1000;
`

// The recipe "Results to your own bucket" of docs/data.md: when the cluster has ended, its results are in the bucket.
func TestResultsToOnesOwnBucket(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 10*money.Unit)
	store := s3test.Start(t)
	c, err := minio.New(strings.TrimPrefix(store.Config.Endpoint, "http://"), &minio.Options{Region: "us-east-1",
		Creds:        credentials.NewStaticV4(store.Config.Access, store.Config.Secret, ""),
		BucketLookup: minio.BucketLookupPath})
	if err != nil {
		t.Fatal(err)
	}
	const input = "the input"
	if _, err := c.PutObject(t.Context(), store.Config.Bucket, "runs/input.txt", strings.NewReader(input),
		int64(len(input)), minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	b, err := r.Buckets.Create(t.Context(), client.NewBucket{
		Name: fmt.Sprintf("results-%d", time.Now().UnixNano()), Endpoint: store.Config.Endpoint, Bucket: store.Config.Bucket,
		Prefix: "runs", AccessKeyID: store.Config.Access, SecretAccessKey: store.Config.Secret,
	})
	if err != nil {
		t.Fatal(err)
	}
	dear := 100 * money.Micro(money.Unit/1000)
	s := p.spec(1, 1, "perl", "-e", writesResults)
	s.Image, s.MaxPricePerHour = p.shellImage(t), &dear
	s.Mounts = []client.Mount{{Path: "/results", Bucket: b.ID, CacheGB: 1}}
	cl := r.run(t, s)
	eventually(t, "the results are written", func() bool {
		text := r.logs(t, cl, 0)
		if now, err := r.Clusters.Get(t.Context(), cl.ID); err != nil || now.State.Ended() {
			t.Fatalf("the job has ended (%v): %s", err, text)
		}
		return strings.Contains(text, "done\n")
	})
	if err := r.Buckets.Delete(t.Context(), b.ID); err == nil {
		t.Error("a bucket that a cluster mounts was deleted")
	}
	if _, err := r.Clusters.Release(t.Context(), cl.ID); err != nil {
		t.Fatal(err)
	}
	r.await(t, cl, client.Released)
	r.settle(t, cl)
	for i := 1; i <= 3; i++ {
		key, want := fmt.Sprintf("runs/result-%d", i), fmt.Sprintf("result %d of %s", i, input)
		eventually(t, key+" is in the bucket", func() bool {
			o, err := c.GetObject(t.Context(), store.Config.Bucket, key, minio.GetObjectOptions{})
			if err != nil {
				return false
			}
			got, err := io.ReadAll(o)
			return err == nil && string(got) == want
		})
	}
	if strings.Contains(r.timeline(t, cl), "not everything was uploaded") {
		t.Errorf("something was not uploaded:\n%s", r.timeline(t, cl))
	}
	if err := r.Buckets.Delete(t.Context(), b.ID); err != nil {
		t.Errorf("delete the bucket after the cluster's end: %v", err)
	}
}
