package cluster

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func TestSpecFromStandardInput(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"nodes": 2,`:           "standard input: line 1",
		``:                       "standard input is empty",
		`{"nodes": 2, "foo": 1}`: `no field "foo"`,
	} {
		cmd := &cobra.Command{}
		cmd.SetIn(strings.NewReader(text))
		f := specFlags{file: "-"}
		if err := f.read(cmd, new(client.Spec)); !fault.Is(err, fault.Invalid) || !strings.Contains(fault.From(err).Message,
			want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// "bucket:" marks a bucket, unless a path follows: then it is the name of a volume.
func TestMountsOfBuckets(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]bool{
		"bucket:results:/results": true, "bkt_x:/results:ro": true, "bucket:/data": false, "training-data:/data": false,
	} {
		if _, got := bucketOf(arg); got != want {
			t.Errorf("%s is a bucket: %v", arg, got)
		}
	}
	f := &specFlags{}
	m, err := f.bucket(nil, id.New[id.Bucket]().String()+":/results:ro:cache=20")
	if err != nil || m.Path != "/results" || m.Mode != "ro" || m.CacheGB != 20 || m.Bucket.IsZero() {
		t.Errorf("%+v %v", m, err)
	}
	if _, err := f.bucket(nil, id.New[id.Bucket]().String()+":/results:ranks"); err == nil {
		t.Error("mode ranks of a bucket is accepted")
	}
}
