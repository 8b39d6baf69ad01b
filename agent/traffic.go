package agent

import (
	"context"
	"net/netip"
	"time"

	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/net/line"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/internal/agentapi"
)

// trafficEvery is how often the counters of the firewall, the overlays and the mounts are stored and reported. They
// also are at the end of a run.
const trafficEvery = 5 * time.Minute

// count adds the counters of the firewall, the overlays and the mounts of every run to its record. Figures that
// cannot be read or written now are added the next time: all keep counting.
func (n *network) count(ctx context.Context) {
	n.mu.Lock() // no element of the table is added or removed between reading and note
	defer n.mu.Unlock()
	flows, err := firewall.Flows(ctx, n.host8)
	if err != nil && ctx.Err() == nil {
		n.log.Warn("traffic could not be counted", "err", err)
	}
	n.note(flows)
	for _, ref := range n.mounting() {
		n.countMounts(ctx, ref)
	}
	for _, ref := range n.restoring() {
		n.countVolumes(ref)
	}
}

// restoring lists the runs whose volumes may be restored or uploaded: those that have any, until they are detached.
func (n *network) restoring() []agentapi.LeaseRef {
	return n.runs.present(func(spec agentapi.LeaseSpec) bool { return len(spec.Mounts) > 0 })
}

// countVolumes adds what the volumes of a run have moved to its record.
func (n *network) countVolumes(ref agentapi.LeaseRef) {
	moved, err := line.Read(n.runs.disk.layout(ref).VolumesMoved)
	if err != nil {
		n.log.Warn("traffic of volumes could not be counted", "lease", ref, "err", err)
		return
	}
	n.noteMoved(ref, movedRead(moved), func(rec *record) *movedRead { return &rec.VolumesRead })
}

// movedRead is what counters of what is moved for a run, outside of its containers, were at the last reading.
type movedRead struct {
	Up   int64 `json:"up,omitempty"`
	Down int64 `json:"down,omitempty"`
}

// noteMoved adds to a run's traffic what counters have counted since the last reading, which is in its record. Counters
// that went back started again from zero: their table or file was deleted.
func (n *network) noteMoved(ref agentapi.LeaseRef, now movedRead, last func(*record) *movedRead) {
	n.runs.mu.Lock()
	defer n.runs.mu.Unlock()
	r := n.runs.find(ref)
	if r == nil {
		return
	}
	rec := r.rec
	before := *last(&rec)
	if before == now {
		return
	}
	*last(&rec) = now
	if now.Up < before.Up || now.Down < before.Down {
		before = movedRead{}
	}
	rec.Traffic.Up += now.Up - before.Up
	rec.Traffic.Down += now.Down - before.Down
	if err := n.runs.disk.save(ref, rec); err != nil {
		n.log.Warn("traffic could not be written down", "lease", ref, "err", err)
		return
	}
	r.rec = rec
}

func (n *network) note(flows map[netip.Addr]firewall.Traffic) {
	n.runs.mu.Lock()
	defer n.runs.mu.Unlock()
	for r := range n.runs.all() {
		if r.rec.Down {
			continue
		}
		read := r.rec.TrafficRead
		if f, ok := flows[r.egress.addr]; ok {
			read = withFlow(read, f)
		}
		if o, err := overlay.ReadTraffic(r.files.Dir); err == nil {
			read.OverlayUp, read.OverlayDown, read.RanksSent, read.RanksReceived = o.Up, o.Down, o.Sent, o.Received
		} else {
			n.log.Warn("traffic between ranks could not be counted", "lease", r.ref, "err", err)
		}
		sum := added(r.rec.Traffic, r.rec.TrafficRead, read)
		if sum == r.rec.Traffic && read == r.rec.TrafficRead {
			continue
		}
		rec := r.rec
		rec.Traffic, rec.TrafficRead = sum, read
		if err := n.runs.disk.save(r.ref, rec); err != nil {
			n.log.Warn("traffic could not be written down", "lease", r.ref, "err", err)
			continue
		}
		r.rec = rec
	}
}

// withFlow returns a reading with the firewall's counters in it.
func withFlow(t agentapi.Traffic, f firewall.Traffic) agentapi.Traffic {
	t.Opened, t.Refused, t.Up, t.Down = int64(f.Opened), int64(f.Refused), int64(f.Up), int64(f.Down)
	return t
}

// added returns a run's total, where the counters were at before at the last reading and are at now. Counters that went
// back started again from zero: the table was flushed, or the overlay's file was damaged.
func added(sum, before, now agentapi.Traffic) agentapi.Traffic {
	if now.Opened < before.Opened || now.Refused < before.Refused || now.Up < before.Up || now.Down < before.Down {
		before = withFlow(before, firewall.Traffic{})
	}
	if now.OverlayUp < before.OverlayUp || now.OverlayDown < before.OverlayDown || now.RanksSent < before.RanksSent ||
		now.RanksReceived < before.RanksReceived {
		before.OverlayUp, before.OverlayDown, before.RanksSent, before.RanksReceived = 0, 0, 0, 0
	}
	sum.Opened += now.Opened - before.Opened
	sum.Refused += now.Refused - before.Refused
	sum.Up += now.Up - before.Up
	sum.Down += now.Down - before.Down
	sum.OverlayUp += now.OverlayUp - before.OverlayUp
	sum.OverlayDown += now.OverlayDown - before.OverlayDown
	sum.RanksSent += now.RanksSent - before.RanksSent
	sum.RanksReceived += now.RanksReceived - before.RanksReceived
	return sum
}

// trafficOf returns the traffic to report of a run: what is not in an accepted report yet. Callers hold runs.mu.
func (r *run) trafficOf() *agentapi.Traffic {
	if r.rec.Traffic == r.reportedTraffic {
		return nil
	}
	t := r.rec.Traffic
	return &t
}
