package host_test

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
)

func (w *world) pulled(counter string, bytes int64) {
	w.t.Helper()
	w.report(w.agent.Host, agentapi.Sync{Pulled: &agentapi.Pulled{Counter: counter, Bytes: bytes}})
}

// A counter only rises, one by another name began at 0, and the cap on what is received bounds images and leases
// together.
func TestImagesCountForTheDataCap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if m := w.month(); m.PulledBytes != nil {
		t.Errorf("an agent that does not count: %d", *m.PulledBytes)
	}
	w.moved(1, 1e9, 5e9)
	w.capped(0, 10)
	want := func(pulled int64, percent float64, told ...string) {
		t.Helper()
		m := w.month()
		if m.PulledBytes == nil || *m.PulledBytes != pulled || m.UpBytes != 1e9 || m.DownBytes != 5e9 ||
			m.UsedPercent != percent ||
			(percent >= 100) != (m.CappedUntil != nil) {
			t.Errorf("%+v, want %d pulled, %v %%", m, pulled, percent)
		}
		if got := w.notices(); !slices.Equal(got, told) {
			t.Errorf("told %v, want %v", got, told)
		}
	}
	w.pulled("a", 0)
	want(0, 50)
	w.pulled("a", 2e9)
	w.pulled("a", 1e9) // late
	w.pulled("a", 2e9) // twice
	want(2e9, 70)
	w.pulled("b", 1e9)
	want(3e9, 80)
	w.pulled("b", 2e9)
	want(4e9, 90, "90")
	w.pulled("b\x00", 3e9) // the same, in what PostgreSQL can hold
	want(5e9, 100, "90", "100")
	// The month ends.
	w.exec("UPDATE host_month_traffic SET month = month - interval '1 month'")
	w.exec("UPDATE host SET capped_until = date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'")
	w.pulled("b", 3e9)
	if m := w.month(); m.PulledBytes == nil || *m.PulledBytes != 0 || m.Received() != 0 || m.CappedUntil != nil {
		t.Errorf("%+v", m)
	}
	w.pulled("b", 1<<62) // no line moves that much: it is taken, and stays in bounds
	w.pulled("c", 1<<62)
	w.pulled("d", 1<<62)
	if m := w.month(); *m.PulledBytes != 9e18 || m.UsedPercent < 100 {
		t.Errorf("%+v", m)
	}
}

// Images that no lease needs are pulled only up to the part of the cap at which the operator gets a notice.
func TestDataForPopularImages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	want := func(what string, left int64, bounded bool) {
		t.Helper()
		if l, b, err := host.DataForPopular(t.Context(), w.d.Q, w.agent.Host); l != left || b != bounded || err != nil {
			t.Errorf("%s: %d %v %v, want %d %v", what, l, b, err, left, bounded)
		}
	}
	want("no cap", 0, false)
	w.moved(1, 5e9, 2e9)
	w.capped(10, 0)
	want("a cap on what is sent", 0, false)
	w.capped(10, 10)
	want("a cap on what is received", 7e9, true)
	w.pulled("a", 5e9)
	want("after an image", 2e9, true)
	w.pulled("a", 8e9)
	want("used up", 0, true)
	w.capped(5, 0)
	want("what is sent is used up", 0, true)
}
