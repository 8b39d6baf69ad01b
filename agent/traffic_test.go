package agent

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/internal/agentapi"
)

// A run's traffic is summed over restarts of the agent and flushes of the firewall's table, and reported until the
// server takes a report of it.
func TestTrafficIsSummedAndTold(t *testing.T) {
	t.Parallel()
	a, again, ref := crashing(t)
	guest := netip.MustParseAddr("10.200.0.9")
	rec := a.runs.find(ref).rec
	rec.Started, rec.BootID, rec.GuestIP, rec.Spec.Egress = false, "b1", guest, "full"
	must(t, a.disk.save(ref, rec))
	count := func(opened, up uint64) {
		a.network.note(map[netip.Addr]firewall.Traffic{guest: {Opened: opened, Refused: 1, Up: up, Down: 2 * up}})
	}
	reported := func() *agentapi.Traffic {
		s, _ := a.sync()
		if len(s.Leases) != 1 {
			t.Fatalf("reported: %+v", s.Leases)
		}
		a.acknowledge(s, nil, agentapi.SyncReply{StatusAck: s.Seq})
		return s.Leases[0].Traffic
	}
	a = again()
	count(3, 1000)
	count(5, 1500)
	a = again() // killed, and the counters go on
	count(6, 1600)
	s, _ := a.sync()
	a.acknowledge(s, nil, agentapi.SyncReply{}) // not taken
	if got := reported(); got == nil || *got != (agentapi.Traffic{Opened: 6, Refused: 1, Up: 1600, Down: 3200}) {
		t.Errorf("reported %+v", got)
	}
	if got := reported(); got != nil {
		t.Errorf("reported again: %+v", got)
	}
	count(2, 100) // the table was flushed, and has counted this since
	if got := reported(); got == nil || *got != (agentapi.Traffic{Opened: 8, Refused: 2, Up: 1700, Down: 3400}) {
		t.Errorf("after a flush: %+v", got)
	}
}

// Traffic between ranks is summed apart from the firewall's counters: each counter may restart by itself, and the
// traffic of an overlay that is down is not read any more.
func TestTrafficBetweenRanksIsSummedAndTold(t *testing.T) {
	t.Parallel()
	a, again, ref := crashing(t)
	guest := netip.MustParseAddr("10.200.0.9")
	rec := a.runs.find(ref).rec
	rec.Started, rec.BootID, rec.GuestIP, rec.Spec.Egress = false, "b1", guest, "full"
	must(t, a.disk.save(ref, rec))
	dir := a.disk.layout(ref).Overlay
	must(t, os.MkdirAll(dir, 0o700))
	count := func(opened uint64, up int64) {
		t.Helper()
		b, err := json.Marshal(map[string]overlay.Traffic{"sum": {Up: up, Down: 2 * up, Sent: 3 * up, Received: 4 * up}})
		must(t, err, os.WriteFile(filepath.Join(dir, "traffic.json"), b, 0o600))
		a.network.note(map[netip.Addr]firewall.Traffic{guest: {Opened: opened}})
	}
	want := func(what string, opened, up int64) {
		t.Helper()
		s, _ := a.sync()
		if len(s.Leases) != 1 || s.Leases[0].Traffic == nil {
			t.Fatalf("%s: %+v", what, s.Leases)
		}
		if got := *s.Leases[0].Traffic; got != (agentapi.Traffic{
			Opened:        opened,
			OverlayUp:     up,
			OverlayDown:   2 * up,
			RanksSent:     3 * up,
			RanksReceived: 4 * up,
		}) {
			t.Errorf("%s: %+v", what, got)
		}
	}
	a = again()
	count(1, 100)
	a = again() // killed
	count(2, 150)
	want("by the next agent", 2, 150)
	count(1, 170) // the table was flushed
	want("after a flush", 3, 170)
	count(1, 10) // the file was damaged
	want("after damage", 3, 180)
	a.network.note(nil) // the firewall cannot be read
	want("without the firewall", 3, 180)
	rec = a.runs.find(ref).rec
	rec.Down = true
	must(t, a.disk.save(ref, rec), os.RemoveAll(dir))
	a = again()
	a.network.note(nil)
	want("once it is down", 3, 180)
}
