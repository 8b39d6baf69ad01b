package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// preflight is what the ranks of a locked cluster have measured of their network before they start.
type preflight struct {
	row     *dbq.Cluster
	out     *effects
	members *members
	news    *news
}

// network collects what the ranks measured, the lowest bus bandwidth and the matrices, and compares it with the hosts'
// own figures.
func (pf *preflight) network() {
	var net Network
	if json.Unmarshal(pf.row.Network, &net) != nil {
		return
	}
	net.BusbwGbps, net.OfferedGbps, net.RTTMicros, net.PairGbps = 0, 0, nil, nil
	net.RDMA = pf.measuredRDMA()
	var hosts []id.Host
	for _, n := range pf.members.nodes {
		var p agentapi.Preflight
		if json.Unmarshal(n.Preflight, &p) != nil || p.BusbwGbps <= 0 {
			continue
		}
		if net.BusbwGbps == 0 || p.BusbwGbps < net.BusbwGbps {
			net.BusbwGbps = p.BusbwGbps
		}
		net.RTTMicros, net.PairGbps = append(net.RTTMicros, p.RTTMicros), append(net.PairGbps, p.PairGbps)
		hosts = append(hosts, n.HostID)
	}
	if b, err := json.Marshal(net); err == nil {
		pf.row.Network = b
	}
	if len(hosts) < len(pf.members.nodes) {
		return // a rank did not measure: nothing follows for hosts
	}
	if f := pf.fabric(); f.BusbwGbps > 0 {
		pf.out.addWrite(func(ctx context.Context, w *writer) error {
			w.tx.AfterCommit(func() { w.m.measuredFabric(context.WithoutCancel(ctx), f, w.x.now) })
			return nil
		})
	}
	if l := lines(hosts, net.PairGbps); len(l) > 1 {
		pf.out.addWrite(func(ctx context.Context, w *writer) error {
			offered, err := host.OfferedGbps(ctx, w.tx, hosts) // before this measurement counts in it
			if err != nil {
				return err
			}
			w.tx.AfterCommit(func() { w.m.measured(context.WithoutCancel(ctx), l, net.BusbwGbps, w.x.now) })
			return w.x.preflight.compareOffered(net, offered)
		})
	}
}

// fabric returns what all ranks measured over RDMA; without a figure if any rank measured nothing.
func (pf *preflight) fabric() host.Fabric {
	f := host.Fabric{Cluster: pf.row.ID}
	for _, n := range pf.members.nodes {
		var p agentapi.Preflight
		if json.Unmarshal(n.Preflight, &p) != nil || p.NCCL == nil || p.NCCL.Kind != "" || p.NCCL.BusbwGbps <= 0 ||
			p.NCCL.BusbwGbps > maxGbps || p.NCCL.LocalGbps < 0 || p.NCCL.LocalGbps > maxGbps {
			return host.Fabric{}
		}
		if f.BusbwGbps == 0 || p.NCCL.BusbwGbps < f.BusbwGbps {
			f.BusbwGbps = p.NCCL.BusbwGbps
		}
		f.Hosts = append(f.Hosts, host.FabricHost{Host: n.HostID, LocalGbps: p.NCCL.LocalGbps, NCCL: p.NCCL.Version})
	}
	return f
}

// measuredRDMA returns what a cluster's page says of its RDMA network: the figure, or why there is none; nil if nothing
// was to be measured.
func (pf *preflight) measuredRDMA() *client.ClusterRDMA {
	var out *client.ClusterRDMA
	for _, n := range pf.members.nodes {
		var p agentapi.Preflight
		if json.Unmarshal(n.Preflight, &p) != nil || p.NCCL == nil {
			continue
		}
		m := p.NCCL
		if out == nil {
			out = &client.ClusterRDMA{BusbwGbps: m.BusbwGbps, Rails: m.Rails, GDR: m.GDR, NCCL: m.Version}
		}
		out.BusbwGbps, out.Rails, out.GDR = min(out.BusbwGbps, m.BusbwGbps), min(out.Rails, m.Rails), out.GDR && m.GDR
		if m.Kind != "" && out.Detail == "" {
			out.Detail = fmt.Sprintf("rank %d: %s", n.Rank, clip(m.Detail, 500))
		}
	}
	if out != nil && out.Detail != "" {
		out.BusbwGbps = 0
	}
	return out
}

// measuredFabric stores what was measured over RDMA, as measured does.
func (m *machine) measuredFabric(ctx context.Context, f host.Fabric, at time.Time) {
	err := m.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return host.RecordFabric(ctx, tx, f, at) })
	if err != nil {
		m.log.Warn("what a cluster measured over RDMA is lost", "err", err)
	}
}

// compareOffered compares what was measured with the hosts' offers, and adds an event if it is far less.
func (pf *preflight) compareOffered(net Network, offered float64) (err error) {
	net.OfferedGbps = offered
	if pf.row.Network, err = json.Marshal(net); err != nil {
		return err
	}
	if net.OfferedGbps > 0 && net.BusbwGbps < net.OfferedGbps*fallsShort {
		pf.news.addEvent("network_below_offer", "The network is slower than the offers say", lifecycle.Sentences(
			fmt.Sprintf("All-reduce between the ranks reached %s Gbit/s, the offers of these hosts say %s.", rate(net.BusbwGbps),
				rate(net.OfferedGbps)),
			"Seconds count as usual. If it is too little for you, release the cluster and rent on other hosts; with "+
				"network.min_gbps a start below your bound fails, free of charge."))
	}
	return nil
}

// fallsShort is the part of the offered bandwidth below which the renter is notified: offers show the best of a week,
// and single measurements vary.
const fallsShort = 0.5

// rate formats Gbit/s for people; a slow one is not shown as 0.0.
func rate(gbps float64) string {
	if gbps < 1 {
		return strconv.FormatFloat(gbps, 'g', 2, 64)
	}
	return strconv.FormatFloat(gbps, 'f', 1, 64)
}

// measured stores what was measured of hosts, in its own transaction: a host that reports at this moment locks its rows
// in another order than a cluster does. If it is lost, the next cluster measures again.
func (m *machine) measured(ctx context.Context, l []host.Line, busbw float64, at time.Time) {
	err := m.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return host.RecordNetwork(ctx, tx, l, busbw, at) })
	if err != nil {
		m.log.Warn("what a preflight measured of hosts is lost", "err", err)
	}
}

// lines returns the bandwidth of the hosts' lines as their ranks measured it: the row sends to the column. Ranks on one
// host measure nothing of its line.
func lines(hosts []id.Host, pairs [][]float64) []host.Line {
	best := map[id.Host]*host.Line{}
	var order []id.Host
	for _, h := range hosts {
		if best[h] == nil {
			best[h] = &host.Line{Host: h}
			order = append(order, h)
		}
	}
	for i, row := range pairs {
		for j, gbps := range row {
			if i >= len(hosts) || j >= len(hosts) || hosts[i] == hosts[j] || gbps <= 0 || gbps > maxGbps {
				continue
			}
			best[hosts[i]].UpMbps = max(best[hosts[i]].UpMbps, gbps*1000)
			best[hosts[j]].DownMbps = max(best[hosts[j]].DownMbps, gbps*1000)
		}
	}
	out := make([]host.Line, len(order))
	for i, h := range order {
		out[i] = *best[h]
	}
	return out
}

// maxGbps is more than any network between hosts has: higher values are no measurements.
const maxGbps = 100_000

// overlay is the address range of every cluster's network; rank n has base + n + 1. The networks of clusters are
// separate, so all use the same range.
var overlay = netip.MustParsePrefix("10.77.0.0/20")

// NodeAddress returns the address of a rank on the cluster's network.
func NodeAddress(rank int) string {
	a := overlay.Addr().As4()
	n := rank + 1
	a[2] += byte(n >> 8)
	a[3] = byte(n)
	return netip.AddrFrom4(a).String()
}
