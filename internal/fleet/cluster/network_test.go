package cluster

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// A host's line is the best its ranks measured to other hosts; ranks that share a host say nothing of it.
func TestLines(t *testing.T) {
	t.Parallel()
	a, b, c := id.New[id.Host](), id.New[id.Host](), id.New[id.Host]()
	got := lines([]id.Host{a, a, b, c}, [][]float64{
		{0, 90, 1, 0.5},
		{80, 0, 2, 0.4},
		{3, 1, 0, math.Inf(1)},
		{0.1, 0.2, -1, 0},
	})
	want := []host.Line{{
		Host:     a,
		UpMbps:   2000,
		DownMbps: 3000,
	}, {Host: b, UpMbps: 3000, DownMbps: 2000}, {Host: c, UpMbps: 200, DownMbps: 500}}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b id.Host) bool { return a == b })); d != "" {
		t.Error(d)
	}
	if got := lines([]id.Host{a, b}, nil); got[0].UpMbps != 0 {
		t.Errorf("without pairs: %+v", got)
	}
}
