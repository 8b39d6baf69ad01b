package market

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/internal/id"
)

// Hold claims the GPUs of a plan for leases, inside the renter's transaction: it locks the hosts (by id), lets expired
// quote claims end, checks price, terms and sums again, and inserts the claims by GPU id. Other GPUs of the same offer
// take the place of those that were taken meanwhile, so the result may differ from the plan in GPUs, never in hosts or
// price. ErrStale: it no longer fits; the transaction must roll back.
func (m *Market) Hold(ctx context.Context, tx *db.Tx, plan Placement, leases LeaseOf) (Placement, error) {
	pipe, inner := tx.Pipe()
	h := m.QueueClaim(ctx, pipe, inner, plan)
	pipe.Send(ctx)
	h.Read()
	err := pipe.Close()
	if err == nil {
		err = h.Fit()
	}
	if err != nil {
		return Placement{}, err
	}
	pipe = db.NewPipe(tx.Q)
	claimed := h.QueueClaims(ctx, pipe, leases)
	pipe.Send(ctx)
	taken := claimed()
	return h.Placement, cmp.Or(pipe.Close(), taken)
}

// PendingClaim is Hold in steps, for a caller that queues statements of its own with each: QueueClaim, Read, Fit,
// QueueClaims.
type PendingClaim struct {
	Placement Placement // after Fit

	m      *Market
	plan   Placement
	rows   *fleetRows
	lapsed bool // quotes' claims that have run out are on some of the GPUs
}

// QueueClaim puts the locks of a plan's hosts, and what they are under these, in a pipe whose transaction is tx.
func (m *Market) QueueClaim(ctx context.Context, p *db.Pipe, tx *db.Tx, plan Placement) *PendingClaim {
	ids := plan.HostIDs()
	if len(ids) > 0 {
		_ = host.LockOnly(ctx, tx, ids) // nil now: a pipe
	}
	return &PendingClaim{m: m, plan: plan, rows: queueHosts(ctx, p, ids, m.cfg.AllowSimulated, false)}
}

// Read reads the answers, after Send.
func (h *PendingClaim) Read() { h.rows.read() }

// Fit fits the plan to what the hosts are now, after Close; ErrStale: it no longer fits.
func (h *PendingClaim) Fit() error {
	now, err := h.rows.assemble()
	if err != nil {
		return err
	}
	if h.Placement, err = h.m.fit(h.plan, now); err != nil {
		return err
	}
	for _, n := range h.Placement.Nodes {
		h.lapsed = h.lapsed || h.rows.lapsed(n.GPUs)
	}
	return nil
}

// QueueClaims puts the claims in a pipe. Its result, after Send, is ErrStale when a GPU was claimed after all.
func (h *PendingClaim) QueueClaims(ctx context.Context, p *db.Pipe, leases LeaseOf) (claimed func() error) {
	asked := host.QueueClaims(ctx, p, host.ForLease, claimSets(h.Placement,
		func(rank int) uuid.UUID { return leases(rank).UUID() }), h.lapsed)
	return func() error { return stale(asked()) }
}

// recheck locks the hosts of a plan and fits the plan to what they are now.
func (m *Market) recheck(ctx context.Context, tx *db.Tx, plan Placement) (Placement, error) {
	ids := plan.HostIDs()
	pipe, inner := tx.Pipe()
	if err := host.LockOnly(ctx, inner, ids); err != nil {
		return Placement{}, err
	}
	now, err := loadHosts(ctx, pipe, ids, m.cfg.AllowSimulated, false)
	if err != nil {
		return Placement{}, err
	}
	return m.fit(plan, now)
}

// fit is the plan on the hosts as they are now; ErrStale: it no longer fits.
func (m *Market) fit(plan Placement, now map[id.Host]*Host) (Placement, error) {
	held := Placement{Nodes: make([]Placed, len(plan.Nodes)), Rate: plan.Rate, Duration: plan.Duration}
	for i, n := range plan.Nodes {
		h := now[n.Host]
		if h == nil {
			return Placement{}, fmt.Errorf("%s sells no more: %w", n.Host, ErrStale)
		}
		if why := h.refuses(n, plan.Duration); why != "" {
			return Placement{}, fmt.Errorf("%s: %s: %w", n.Host, why, ErrStale)
		}
		if !h.allFree(n.GPUs) {
			h.Topology = m.view.topology(n.Host)
			n.GPUs = h.choose(n.Model, len(n.GPUs))
		}
		held.Nodes[i] = n
		now[n.Host] = h.without(n)
	}
	return held, nil
}

// refuses says why a planned node no longer fits the host as it is, or "".
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
	case n.Runtime != "" && !query.HasWord(h.Runtimes, n.Runtime):
		return "it no longer has the runtime " + n.Runtime
	case h.CPUTaken+n.CPUCores > float64(h.CPUCores)+cpuRounding, h.RAMTakenMB+n.RAMMB > h.sellableRAMMB():
		return "its processors or memory were taken"
	}
	return ""
}

// takes reports whether the offer accepts a rental of so many seconds; 0 is an open-ended one.
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

// claim inserts the claims of a placement whose hosts are locked, each node's for its own ref.
func claim(ctx context.Context, tx *db.Tx, kind host.ClaimKind, p Placement, ref func(rank int) uuid.UUID,
	expires *time.Time) error {
	return stale(host.ClaimAll(ctx, tx, kind, claimSets(p, ref), expires))
}

func stale(err error) error {
	if errors.Is(err, host.ErrTaken) {
		return fmt.Errorf("a GPU is claimed: %w", ErrStale)
	}
	return err
}

// claimSets are the GPUs of each node, for its ref.
func claimSets(p Placement, ref func(rank int) uuid.UUID) []host.ClaimSet {
	out := make([]host.ClaimSet, len(p.Nodes))
	for i, n := range p.Nodes {
		out[i].Ref = ref(n.Rank)
		for _, g := range n.GPUs {
			out[i].GPUs = append(out[i].GPUs, host.GPURef{Host: n.Host, GPU: g.ID})
		}
	}
	return out
}

// LeaseOf gives the lease a rank's GPUs are claimed for. It is called once per rank.
type LeaseOf func(rank int) id.Lease
