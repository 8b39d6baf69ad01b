package agent

import (
	"net/netip"
	"testing"

	"github.com/musterhq/muster/agent/firewall"
	"github.com/musterhq/muster/internal/agentapi"
)

// What a run did is summed over restarts of the agent and flushes of the firewall's table, and told until a report of it
// was taken.
func TestTrafficIsSummedAndTold(t *testing.T) {
	t.Parallel()
	a, again, ref := crashing(t)
	guest := netip.MustParseAddr("10.200.0.9")
	rec := a.find(ref).rec
	rec.Started, rec.BootID, rec.GuestIP, rec.Spec.Egress = false, "b1", guest, "full"
	must(t, a.disk.save(ref, rec))
	count := func(opened, up uint64) {
		a.noteTraffic(map[netip.Addr]firewall.Traffic{guest: {Opened: opened, Refused: 1, Up: up, Down: 2 * up}})
	}
	told := func() *agentapi.Traffic {
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
	if got := told(); got == nil || *got != (agentapi.Traffic{Opened: 6, Refused: 1, Up: 1600, Down: 3200}) {
		t.Errorf("told %+v", got)
	}
	if got := told(); got != nil {
		t.Errorf("told again: %+v", got)
	}
	count(2, 100) // the table was flushed, and has counted this since
	if got := told(); got == nil || *got != (agentapi.Traffic{Opened: 8, Refused: 2, Up: 1700, Down: 3400}) {
		t.Errorf("after a flush: %+v", got)
	}
}
