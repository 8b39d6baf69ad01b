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

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// LoadSnapshot reads the whole fleet: all hosts that can sell now. In a transaction, the result is as consistent as the
// transaction's isolation.
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

// fleetRows is the rows of all tables about some hosts.
type fleetRows struct {
	hosts  []dbq.FleetHostsRow
	gpus   []dbq.FleetGPUsRow
	offers []dbq.FleetOffersRow
	leases []dbq.FleetLeasesRow
	quotes []dbq.FleetQuotesRow
}

// loadHosts reads those of the hosts that can sell now, by id, in one round trip.
func loadHosts(ctx context.Context, q *dbq.Queries, ids []id.Host, allowSimulated bool) (map[id.Host]*Host, error) {
	b := &pgx.Batch{}
	r := queueHosts(b, ids, allowSimulated, true)
	if err := db.Send(ctx, q, b); err != nil {
		return nil, fmt.Errorf("market: load hosts: %w", err)
	}
	return r.assemble()
}

// queueHosts queues reads of those of the hosts that can sell now. If the caller has locked the hosts, the results
// cannot change before the transaction ends, except by the hosts' own reports. Without topology, the reads omit the
// topology, the largest part, which seldom changes.
func queueHosts(b *pgx.Batch, ids []id.Host, allowSimulated, topology bool) *fleetRows {
	r := &fleetRows{}
	if len(ids) == 0 {
		return r
	}
	named := uuids(ids)
	db.Read(b, &r.hosts, (*dbq.Queries).FleetHosts, dbq.FleetHostsParams{
		Hosts:     named,
		WithinMs:  host.ReachableFor.Milliseconds(),
		Protocol:  agentapi.OldestRented,
		Simulated: allowSimulated,
		Topology:  topology,
	})
	db.Read(b, &r.gpus, (*dbq.Queries).FleetGPUs, named)
	db.Read(b, &r.offers, (*dbq.Queries).FleetOffers, named)
	db.Read(b, &r.leases, (*dbq.Queries).FleetLeases, named)
	db.Read(b, &r.quotes, (*dbq.Queries).FleetQuotes, named)
	return r
}

// assemble converts the rows to hosts. It omits hosts without a priced offer.
func (r *fleetRows) assemble() (map[id.Host]*Host, error) {
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

func (r *fleetRows) addGPUs(hosts map[id.Host]*Host) {
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

// lapsed reports whether any of the GPUs is free only because a quote's claim on it has expired.
func (r *fleetRows) lapsed(gpus []GPU) bool {
	return slices.ContainsFunc(r.gpus, func(row dbq.FleetGPUsRow) bool {
		return row.Free && row.ExpiresAt != nil && slices.ContainsFunc(gpus, func(g GPU) bool { return g.ID == row.ID })
	})
}

func (r *fleetRows) addOffers(hosts map[id.Host]*Host) {
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
func (r *fleetRows) subtractTaken(hosts map[id.Host]*Host) error {
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
