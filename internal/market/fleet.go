package market

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/host"
	"github.com/musterhq/muster/internal/id"
)

// oldestProtocol is the oldest agent that gets new leases.
const oldestProtocol = agentapi.Protocol - 1

// LoadSnapshot reads the whole fleet: every host that sells at this moment. In a transaction it is as authoritative as
// the transaction's isolation.
func LoadSnapshot(ctx context.Context, q *dbq.Queries, allowSimulated bool) (*Snapshot, error) {
	ids, err := q.ReachableHosts(ctx, host.ReachableFor.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("market: reachable hosts: %w", err)
	}
	hosts, err := loadHosts(ctx, q, ids, allowSimulated)
	if err != nil {
		return nil, err
	}
	s := NewSnapshot(0)
	for _, h := range hosts {
		s.Put(h)
	}
	return s, nil
}

// loadHosts reads those of the hosts that sell now, by id. Under the hosts' locks what it finds cannot change before the
// transaction ends, but for the hosts' own reports.
func loadHosts(ctx context.Context, q *dbq.Queries, ids []id.Host, allowSimulated bool) (map[id.Host]*Host, error) {
	out := make(map[id.Host]*Host, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	rows, err := q.FleetHosts(ctx, dbq.FleetHostsParams{
		Hosts: uuids(ids), WithinMs: host.ReachableFor.Milliseconds(), Protocol: oldestProtocol, Simulated: allowSimulated,
	})
	if err != nil {
		return nil, fmt.Errorf("market: load hosts: %w", err)
	}
	topologies := map[string]*Topology{} // most hosts of a fleet are built alike
	for i := range rows {
		r := &rows[i]
		t, seen := topologies[r.Topology]
		if !seen {
			t = ParseTopology([]byte(r.Topology))
			topologies[r.Topology] = t
		}
		out[r.ID] = &Host{
			ID: r.ID, Org: r.OrgID, Name: r.Name, Region: r.Region, Fabric: r.FabricID, FabricName: r.FabricName,
			Simulated: r.Simulated, MultiNode: r.MultiNode, CPUCores: int(r.CPUCores), RAMMB: r.RAMMb, DiskFreeGB: r.DiskGb,
			Driver: r.Driver, CUDAMax: r.CudaMax, BusbwGbps: r.BusbwGbps, NetUpMbps: r.NetUpMbps, NetDownMbps: r.NetDownMbps,
			Topology: t,
		}
	}
	if len(out) == 0 {
		return out, nil
	}
	if err := loadGPUs(ctx, q, out); err != nil {
		return nil, err
	}
	if err := loadOffers(ctx, q, out); err != nil {
		return nil, err
	}
	return out, loadTaken(ctx, q, out)
}

func loadGPUs(ctx context.Context, q *dbq.Queries, hosts map[id.Host]*Host) error {
	rows, err := q.FleetGPUs(ctx, keys(hosts))
	if err != nil {
		return fmt.Errorf("market: load GPUs: %w", err)
	}
	for i := range rows {
		g := &rows[i]
		h := hosts[g.HostID]
		h.GPUs = append(h.GPUs, HostGPU{
			GPU: GPU{g.ID, g.UUID, int(g.Idx)}, Model: g.Model, Arch: g.Arch, VRAMMB: g.VramMb, ComputeCap: g.ComputeCap,
			PCIeGen: int(g.PcieGen), NVLink: g.Nvlink, NVLinkGbps: g.NvlinkGbps, Free: g.Free,
		})
		if !g.Free && g.ExpiresAt != nil && (h.NextExpiry.IsZero() || g.ExpiresAt.Before(h.NextExpiry)) {
			h.NextExpiry = *g.ExpiresAt
		}
	}
	return nil
}

func loadOffers(ctx context.Context, q *dbq.Queries, hosts map[id.Host]*Host) error {
	rows, err := q.FleetOffers(ctx, keys(hosts))
	if err != nil {
		return fmt.Errorf("market: load offers: %w", err)
	}
	for _, o := range rows {
		h := hosts[o.HostID]
		if slices.ContainsFunc(h.GPUs, func(g HostGPU) bool { return g.Model == o.GPUModel }) {
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
	return nil
}

// loadTaken subtracts what leases and quotes keep.
func loadTaken(ctx context.Context, q *dbq.Queries, hosts map[id.Host]*Host) error {
	leases, err := q.FleetLeases(ctx, keys(hosts))
	if err != nil {
		return fmt.Errorf("market: load leases: %w", err)
	}
	for _, l := range leases {
		hosts[l.HostID].take(l.CPUCores, l.RAMMb, l.DiskGb)
	}
	quotes, err := q.FleetQuotes(ctx, keys(hosts))
	if err != nil {
		return fmt.Errorf("market: load quotes: %w", err)
	}
	for _, row := range quotes {
		var p Placement
		if err := json.Unmarshal(row.Placement, &p); err != nil {
			return fmt.Errorf("market: placement of %s: %w", row.ID, err)
		}
		for _, n := range p.Nodes {
			if h := hosts[n.Host]; h != nil {
				h.take(n.CPUCores, n.RAMMB, n.DiskGB)
			}
		}
	}
	return nil
}

func (h *Host) take(cores float64, ramMB, diskGB int64) {
	h.CPUTaken += cores
	h.RAMTakenMB += ramMB
	h.DiskFreeGB -= diskGB
}

// fleetRead is one read of the fleet's changes, in one database snapshot.
type fleetRead struct {
	mark  string    // for the next read
	at    time.Time // PostgreSQL's clock
	ids   []id.Host // read again; those not in hosts do not sell now
	hosts map[id.Host]*Host
	// reach is every reachable host; nil when this read did not ask.
	reach map[id.Host]bool
}

func keys(hosts map[id.Host]*Host) []pgtype.UUID {
	out := make([]pgtype.UUID, 0, len(hosts))
	for h := range hosts {
		out = append(out, pgtype.UUID{Bytes: h.UUID(), Valid: true})
	}
	return out
}

// uuids is ids as a query parameter.
func uuids[K id.Kind](ids []id.ID[K]) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, v := range ids {
		out[i] = pgtype.UUID{Bytes: v.UUID(), Valid: true}
	}
	return out
}
