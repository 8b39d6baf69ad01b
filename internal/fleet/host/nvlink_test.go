package host_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// What a host says that its GPUs sent over NVLink is believed up to what the links carry. A clock that is wrong, or a
// host that lies about the time, changes only the date. Older agents say nothing.
func TestNVLinkIsBelievedUpToWhatItsLinksCarry(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	inv := fleettest.Inventory(7) // of one link of 200 Gbit/s each
	for i, gbps := range []float64{0, 180.5, 200, 201, -1, 150, 150} {
		inv.GPUs[i].RingGbps, inv.GPUs[i].RingAtMS = gbps, 1_790_000_000_000
	}
	inv.GPUs[5].RingAtMS, inv.GPUs[6].RingAtMS = math.MaxInt64, math.MinInt64
	before := time.Now()
	_, gpus := enrolled(t, d, inv)
	at := time.UnixMilli(1_790_000_000_000).UTC()
	for i, want := range []float64{0, 180.5, 200, 0, 0, 150, 150} {
		g := gpus[inv.GPUs[i].UUID]
		if g.BusbwNVLink != want || i < 3 && want > 0 && !g.BusbwNVLinkAt.Equal(at) {
			t.Errorf("GPU %d: %v Gbit/s at %s, want %v", i, g.BusbwNVLink, g.BusbwNVLinkAt, want)
		}
	}
	if at := gpus[inv.GPUs[5].UUID].BusbwNVLinkAt; at.Before(before.Add(-time.Minute)) || at.After(time.Now()) {
		t.Errorf("a measurement in the future is of %s", at)
	}
	if at := gpus[inv.GPUs[6].UUID].BusbwNVLinkAt; at.Year() != 1970 {
		t.Errorf("a measurement in the distant past is of %s", at)
	}
	d = dbtest.New(t)
	inv = fleettest.Inventory(1)
	inv.GPUs[0].NVLinks, inv.GPUs[0].RingGbps = []agentapi.NVLink{{Active: true, Version: 99}}, 100
	if _, gpus := enrolled(t, d, inv); gpus[inv.GPUs[0].UUID].BusbwNVLink != 0 {
		t.Error("a figure is believed of links whose speed is not known")
	}
}

// The operator sees the slowest GPU of each model, and nothing of a model with a GPU that was not measured.
func TestAHostSaysWhichGPUIsTheSlowestOverNVLink(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	inv := fleettest.Inventory(6)
	const older, newer = 1_790_000_000_000, 1_790_000_060_000
	for i, gbps := range []float64{190, 120, 180, 170, 0, 160} {
		inv.GPUs[i].RingGbps, inv.GPUs[i].RingAtMS = gbps, newer
	}
	inv.GPUs[2].RingAtMS = older
	for i := 4; i < 6; i++ {
		inv.GPUs[i].Model = "NVIDIA A30"
	}
	h, _ := enrolled(t, d, inv)
	got, err := host.New(d, nil).Get(t.Context(), account.Principal{Org: h.Org}, h.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := []host.MeasuredNVLink{{Model: "NVIDIA H100 80GB HBM3", Gbps: 120, Slowest: 1, At: time.UnixMilli(older).UTC()}}
	if diff := cmp.Diff(want, got.NVLink()); diff != "" {
		t.Error(diff)
	}
}
