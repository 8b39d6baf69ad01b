package market

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/internal/id"
)

// Claim claims the GPUs of a plan for leases of a cluster, in the renter's transaction. It locks the hosts in the
// order of their ids, ends expired claims of quotes, checks price, terms and sums again, and inserts the claims in the
// order of GPU ids. If some of the planned GPUs have been claimed meanwhile, Claim takes other GPUs of the same offer,
// so the result may differ from the plan in GPUs, but not in hosts or price. On ErrStale the plan no longer fits and
// the transaction must roll back.
func (m *Market) Claim(ctx context.Context, tx *db.Tx, plan Placement, cluster id.Cluster,
	leases LeaseOf) (Placement, error) {
	b := &pgx.Batch{}
	hosts := m.QueueHosts(b, plan.HostIDs(), true)
	if err := tx.Send(ctx, b); err != nil {
		return Placement{}, fmt.Errorf("lock hosts: %w", err)
	}
	placed, err := hosts.Fit(plan)
	if err != nil {
		return Placement{}, err
	}
	b = &pgx.Batch{}
	host.QueueLeaseClaims(b, tx, m.cfg.Bus, placed.ClaimSets(cluster, leases), hosts.Lapsed(placed))
	return placed, ClaimFailure(tx.Send(ctx, b), false)
}

// ClaimFailure translates the error of a transaction that sent the statements of host.QueueLeaseClaims. If a GPU was
// not free, it returns ErrStale for a plan and a fault.Conflict for a quote. It returns any other error unchanged.
func ClaimFailure(err error, quoted bool) error {
	switch {
	case !host.IsTaken(err):
		return err
	case quoted: // not rented, since the quote claimed it: it became unhealthy
		return fault.Wrap(err, fault.Conflict, "a GPU of the quote is no longer available: ask for a new one")
	}
	return fmt.Errorf("a GPU is claimed: %w", ErrStale)
}

// HostRows is what the tables hold about some hosts; see QueueHosts.
type HostRows struct {
	m      *Market
	hosts  []dbq.FleetHostsRow
	gpus   []dbq.FleetGPUsRow
	offers []dbq.FleetOffersRow
	leases []dbq.FleetLeasesRow
	quotes []dbq.FleetQuotesRow
}

// QueueHosts queues reads of those of the hosts that can sell now. With lock it first locks the hosts, in the order of
// their ids: then the results cannot change before the transaction ends, except by the hosts' own reports, and they
// omit the topology, the largest part, which seldom changes.
func (m *Market) QueueHosts(b *pgx.Batch, ids []id.Host, lock bool) *HostRows {
	r := &HostRows{m: m}
	if len(ids) == 0 {
		return r
	}
	named := id.UUIDs(ids...)
	if lock {
		db.Write(b, (*dbq.Queries).LockHostRows, named)
	}
	db.Read(b, &r.hosts, (*dbq.Queries).FleetHosts, dbq.FleetHostsParams{
		Hosts:     named,
		WithinMs:  host.ReachableFor.Milliseconds(),
		Protocol:  agentapi.OldestRented,
		Simulated: m.cfg.AllowSimulated,
		Topology:  !lock,
	})
	db.Read(b, &r.gpus, (*dbq.Queries).FleetGPUs, named)
	db.Read(b, &r.offers, (*dbq.Queries).FleetOffers, named)
	db.Read(b, &r.leases, (*dbq.Queries).FleetLeases, named)
	db.Read(b, &r.quotes, (*dbq.Queries).FleetQuotes, named)
	return r
}

// Fit fits a plan to its hosts, which QueueHosts has locked: it takes other GPUs of the same offer for those that have
// been claimed since. It returns ErrStale if the plan no longer fits.
func (r *HostRows) Fit(plan Placement) (Placement, error) {
	hosts, err := r.assemble()
	if err != nil {
		return Placement{}, err
	}
	fitted := Placement{Nodes: make([]Placed, len(plan.Nodes)), Rate: plan.Rate, Duration: plan.Duration}
	for i, n := range plan.Nodes {
		h := hosts[n.Host]
		if h == nil {
			return Placement{}, fmt.Errorf("%s sells no more: %w", n.Host, ErrStale)
		}
		if why := h.refuses(n, plan.Duration); why != "" {
			return Placement{}, fmt.Errorf("%s: %s: %w", n.Host, why, ErrStale)
		}
		if !h.allFree(n.GPUs) {
			h.Topology = r.m.view.topology(n.Host)
			n.GPUs = h.choose(n.Model, len(n.GPUs))
		}
		fitted.Nodes[i] = n
		hosts[n.Host] = h.without(n)
	}
	return fitted, nil
}

// assemble converts the rows to hosts. It omits hosts without a priced offer.
func (r *HostRows) assemble() (map[id.Host]*Host, error) {
	out := make(map[id.Host]*Host, len(r.hosts))
	topologies := map[string]*Topology{} // most hosts of a fleet have the same topology
	for i := range r.hosts {
		h := &r.hosts[i]
		t, seen := topologies[h.Topology]
		if !seen {
			t = ParseTopology([]byte(h.Topology))
			topologies[h.Topology] = t
		}
		out[h.ID] = &Host{
			ID:            h.ID,
			Org:           h.OrgID,
			Name:          h.Name,
			Region:        h.Region,
			Fabric:        h.FabricID,
			FabricName:    h.FabricName,
			Simulated:     h.Simulated,
			MultiNode:     h.MultiNode,
			CPUCores:      int(h.CPUCores),
			RAMMB:         h.RAMMb,
			DiskFreeGB:    h.DiskGb,
			DiskLimited:   h.DiskLimited,
			ScratchFreeGB: h.ScratchGb,
			Entrypoint:    h.Entrypoint,
			Users:         h.Users,
			Volumes:       h.Volumes,
			VolumeRanks:   h.VolumeRanks,
			Buckets:       h.Buckets,
			LazyVolumes:   h.LazyVolumes,
			Shared:        strings.Join(h.Shared, " "),
			Runtimes:      strings.Join(h.Runtimes, " "),
			Driver:        h.Driver,
			CUDAMax:       h.CudaMax,
			BusbwGbps:     h.BusbwGbps,
			RDMAGbps:      h.RdmaGbps,
			RDMARails:     int(h.RdmaRails),
			RDMALink:      h.RdmaLink,
			RDMABusbwGbps: lately(h.RdmaBusbwGbps, h.RdmaBusbwAt),
			RDMAIsolation: h.RdmaIsolation,
			NetUpMbps:     h.NetUpMbps,
			NetDownMbps:   h.NetDownMbps,
			Topology:      t,
		}
	}
	r.addGPUs(out)
	r.addOffers(out)
	return out, r.subtractTaken(out)
}

// lately returns a measurement that is not too old to count; a zero is none.
func lately(gbps *float64, at *time.Time) *float64 {
	if gbps == nil || *gbps <= 0 || at == nil || time.Since(*at) > host.RDMAMeasuredFor {
		return nil
	}
	return gbps
}

func (r *HostRows) addGPUs(hosts map[id.Host]*Host) {
	for i := range r.gpus {
		g := &r.gpus[i]
		h := hosts[g.HostID]
		if h == nil {
			continue
		}
		h.GPUs = append(h.GPUs, HostGPU{
			GPU: GPU{g.ID, g.UUID, int(g.Idx)}, Vendor: g.Vendor, Kind: g.Kind, Parent: g.ParentID, ROCmMax: g.RocmMax,
			Hive: g.Hive, Model: g.Model, Arch: g.Arch, VRAMMB: g.VramMb, ComputeCap: g.ComputeCap,
			PCIeGen: int(g.PcieGen), NVLink: g.Nvlink, NVLinkGbps: g.NvlinkGbps,
			PowerLimitW: int64(g.PowerLimitW), PowerDefaultW: int64(g.PowerDefaultW), Free: g.Free,
			Degraded: degraded(g.Degraded, g.DegradedSince), Display: g.Display, PCIeMeasured: g.PcieMeasured,
		})
		if g.BusbwNvlink != nil {
			h.GPUs[len(h.GPUs)-1].BusbwNVLink = *g.BusbwNvlink
		}
		if !g.Free && g.ExpiresAt != nil && (h.NextExpiry.IsZero() || g.ExpiresAt.Before(h.NextExpiry)) {
			h.NextExpiry = *g.ExpiresAt
		}
	}
}

// degraded describes a GPU that is slower than it could be; "" if it is not.
func degraded(why string, since *time.Time) string {
	if since == nil {
		return ""
	}
	g := host.GPU{Degraded: why, DegradedSince: since.UTC()}
	return g.SlowerThanUsual()
}

// Lapsed reports whether any GPU of the placement is free only because a quote's claim on it has expired.
func (r *HostRows) Lapsed(p Placement) bool {
	return slices.ContainsFunc(r.gpus, func(row dbq.FleetGPUsRow) bool {
		return row.Free && row.ExpiresAt != nil && slices.ContainsFunc(p.gpuIDs(), func(g id.GPU) bool { return g == row.ID })
	})
}

func (r *HostRows) addOffers(hosts map[id.Host]*Host) {
	for _, o := range r.offers {
		h := hosts[o.HostID]
		if h != nil && slices.ContainsFunc(h.GPUs, func(g HostGPU) bool { return g.Model == o.GPUModel }) {
			h.Offers = append(h.Offers, HostOffer{
				ID: o.ID, Model: o.GPUModel, Price: *o.Price, MinGPUs: int(o.MinGpus), MaxDuration: o.MaxDurationS,
				HostSharePPM: int(o.HostSharePpm),
			})
		}
	}
	for hid, h := range hosts {
		if len(h.Offers) == 0 {
			delete(hosts, hid)
		}
	}
}

// subtractTaken subtracts the resources that leases and quotes use.
func (r *HostRows) subtractTaken(hosts map[id.Host]*Host) error {
	for _, l := range r.leases {
		if h := hosts[l.HostID]; h != nil {
			h.take(l.CPUCores, l.RAMMb, l.DiskGb, l.ScratchGb)
		}
	}
	for _, row := range r.quotes {
		var p Placement
		if err := json.Unmarshal(row.Placement, &p); err != nil {
			return fmt.Errorf("placement of %s: %w", row.ID, err)
		}
		for _, n := range p.Nodes {
			if h := hosts[n.Host]; h != nil {
				h.take(n.CPUCores, n.RAMMB, n.DiskGB, n.ScratchGB)
			}
		}
	}
	return nil
}

func (h *Host) take(cores float64, ramMB, diskGB, scratchGB int64) {
	h.CPUTaken += cores
	h.RAMTakenMB += ramMB
	h.DiskFreeGB -= diskGB
	h.ScratchFreeGB -= scratchGB
}

// refuses returns the reason for which a planned node no longer fits the host, or "".
func (h *Host) refuses(n Placed, duration int64) string {
	var offer *HostOffer
	for i := range h.Offers {
		if h.Offers[i].ID == n.Offer {
			offer = &h.Offers[i]
		}
	}
	switch {
	case offer == nil:
		return "the offer is gone"
	case offer.Price != n.Price || offer.HostSharePPM != n.HostSharePPM:
		return "the price has changed"
	case offer.MinGPUs > len(n.GPUs), !offer.takes(duration):
		return "the terms have changed"
	case h.free(n.Model) < len(n.GPUs):
		return "its GPUs were taken"
	case h.DiskFreeGB < n.DiskGB:
		return "its disk was taken"
	case n.ScratchGB > 0 && h.ScratchFreeGB < n.ScratchGB:
		return "its scratch was taken"
	case n.DiskLimited && !h.DiskLimited:
		return "it no longer holds nodes to their disk_gb"
	case !n.Tenant.IsZero() && (h.RDMAGbps == 0 || h.Fabric != n.Fabric || len(n.GPUs) != h.whole()):
		return "it no longer lends its RDMA network"
	case n.Runtime != "" && !query.HasWord(h.Runtimes, n.Runtime):
		return "it no longer has the runtime " + n.Runtime
	case h.CPUTaken+n.CPUCores > float64(h.CPUCores)+cpuRounding, h.RAMTakenMB+n.RAMMB > h.sellableRAMMB():
		return "its processors or memory were taken"
	}
	return ""
}

// takes reports whether the offer allows a rental of duration seconds; 0 is an open-ended rental.
func (o *HostOffer) takes(duration int64) bool {
	return o.MaxDuration == 0 || duration > 0 && duration <= o.MaxDuration
}

func (h *Host) free(model string) int {
	n := 0
	for i := range h.GPUs {
		if h.GPUs[i].Free && h.GPUs[i].Model == model {
			n++
		}
	}
	return n
}

// ClaimSets returns the GPUs of each node of the cluster together with its lease.
func (p Placement) ClaimSets(cluster id.Cluster, leases LeaseOf) []host.ClaimSet {
	out := p.claimSets(func(rank int) uuid.UUID { return leases(rank).UUID() })
	for i := range out {
		out[i].Cluster = cluster.UUID()
	}
	return out
}

// claimSets returns the GPUs of each node with the ref of its rank.
func (p Placement) claimSets(ref func(rank int) uuid.UUID) []host.ClaimSet {
	out := make([]host.ClaimSet, len(p.Nodes))
	for i, n := range p.Nodes {
		out[i].Ref = ref(n.Rank)
		if !n.Tenant.IsZero() {
			out[i].Fabric, out[i].Tenant = n.Fabric, n.Tenant
		}
		for _, g := range n.GPUs {
			out[i].GPUs = append(out[i].GPUs, host.GPURef{Host: n.Host, GPU: g.ID})
		}
	}
	return out
}

// LeaseOf returns the lease for a rank. It is called once per rank.
type LeaseOf func(rank int) id.Lease
