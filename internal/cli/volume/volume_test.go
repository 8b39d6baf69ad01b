package volume

import (
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
)

// A cluster that has ended wrote the volume last: it does not write it now.
func TestWriterOf(t *testing.T) {
	t.Parallel()
	cl, ended := id.New[id.Cluster](), time.Now()
	for want, v := range map[[2]string]client.Volume{
		{"Written by", ""}:               {},
		{"Written by", cl.String()}:      {ClusterID: &cl},
		{"Last written by", cl.String()}: {ClusterID: &cl, ClusterEndedAt: &ended},
	} {
		if called, cluster := writerOf(v); called != want[0] || cluster != want[1] {
			t.Errorf("%q %q, want %q", called, cluster, want)
		}
	}
}
