package market

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// loadHosts reads those of the hosts that can sell now, by id, in one round trip.
func (m *Market) loadHosts(ctx context.Context, q *dbq.Queries, ids []id.Host) (map[id.Host]*Host, error) {
	b := &pgx.Batch{}
	r := m.QueueHosts(b, ids, false)
	if err := db.Send(ctx, q, b); err != nil {
		return nil, fmt.Errorf("market: load hosts: %w", err)
	}
	return r.assemble()
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
			Runtimes:      strings.Join(h.Runtimes, " "),
			Driver:        h.Driver,
			CUDAMax:       h.CudaMax,
			BusbwGbps:     h.BusbwGbps,
			NetUpMbps:     h.NetUpMbps,
			NetDownMbps:   h.NetDownMbps,
			Topology:      t,
		}
	}
	r.addGPUs(out)
	r.addOffers(out)
	return out, r.subtractTaken(out)
}

func (r *HostRows) addGPUs(hosts map[id.Host]*Host) {
	for i := range r.gpus {
		g := &r.gpus[i]
		h := hosts[g.HostID]
		if h == nil {
			continue
		}
		h.GPUs = append(h.GPUs, HostGPU{
			GPU: GPU{g.ID, g.UUID, int(g.Idx)}, Model: g.Model, Arch: g.Arch, VRAMMB: g.VramMb, ComputeCap: g.ComputeCap,
			PCIeGen: int(g.PcieGen), NVLink: g.Nvlink, NVLinkGbps: g.NvlinkGbps,
			PowerLimitW: int64(g.PowerLimitW), PowerDefaultW: int64(g.PowerDefaultW), Free: g.Free,
		})
		if !g.Free && g.ExpiresAt != nil && (h.NextExpiry.IsZero() || g.ExpiresAt.Before(h.NextExpiry)) {
			h.NextExpiry = *g.ExpiresAt
		}
	}
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
			return fmt.Errorf("market: placement of %s: %w", row.ID, err)
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

// fleetRead is one read of the fleet's changes, in one database snapshot.
type fleetRead struct {
	mark  string    // position for the next read
	at    time.Time // PostgreSQL's clock
	ids   []id.Host // hosts read again; those not in hosts cannot sell now
	hosts map[id.Host]*Host
	// reach is all reachable hosts; nil if this read did not query them.
	reach map[id.Host]bool
	gangs *Gangs
}

// uuids converts ids to a query parameter.
func uuids[K id.Kind](ids []id.ID[K]) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, v := range ids {
		out[i] = pgtype.UUID{Bytes: v.UUID(), Valid: true}
	}
	return out
}
