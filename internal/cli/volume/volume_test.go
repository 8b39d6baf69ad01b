package volume

import (
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
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

// What is owed for a volume names the amount and the days on which it is hidden and erased.
func TestOwed(t *testing.T) {
	t.Parallel()
	hides, erases := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 12, 8, 0, 0, 0, 0, time.UTC)
	v := client.Volume{Owed: 12 * money.Unit, HidesAt: &hides, ErasesAt: &erases}
	if got := owed(v); got != "12.00: hidden on 2026-12-01, erased on 2026-12-08 unless it is paid" {
		t.Error(got)
	}
	v.HiddenAt = &hides
	if got := owed(v); got != "12.00: hidden until it is paid, erased on 2026-12-08" {
		t.Error(got)
	}
	if got := owed(client.Volume{}); got != "" {
		t.Error(got)
	}
}
