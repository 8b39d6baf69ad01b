package market

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/internal/id"
)

// Hold claims the GPUs of a plan for leases, in the renter's transaction. It locks the hosts in the order of their ids,
// ends expired claims of quotes, checks price, terms and sums again, and inserts the claims in the order of GPU ids. If
// some of the planned GPUs have been claimed meanwhile, Hold takes other GPUs of the same offer, so the result may
// differ from the plan in GPUs, but not in hosts or price. On ErrStale the plan no longer fits and the transaction must
// roll back.
func (m *Market) Hold(ctx context.Context, tx *db.Tx, plan Placement, leases LeaseOf) (Placement, error) {
	b := &pgx.Batch{}
	c := m.QueueClaim(b, plan)
	if err := tx.Send(ctx, b); err != nil {
		return Placement{}, fmt.Errorf("market: lock hosts: %w", err)
	}
	placed, err := c.Fit(time.Time{}) // PostgreSQL has compared all times
	if err != nil {
		return Placement{}, err
	}
	b = &pgx.Batch{}
	c.QueueWrite(b, leases)
	return placed, c.Failure(tx.Send(ctx, b))
}

// Claim claims the GPUs of a plan or quote for leases in steps, so that the caller can add statements to each batch:
// QueueClaim or QueueQuoteClaim queues the locks and reads, Fit decides, QueueWrite queues the writes.
type Claim struct {
	m *Market

	plan Placement
	rows *fleetRows // state of the plan's hosts

	quote   Quote // locked; zero id = the claim is for a plan
	renter  id.Org
	cluster id.Cluster
	hosts   []host.Host // the quote's hosts

	placement Placement // set by Fit
	lapsed    bool      // some of the GPUs have claims of expired quotes
}

// QueueClaim queues the locking of a plan's hosts and the reading of their free resources.
func (m *Market) QueueClaim(b *pgx.Batch, plan Placement) *Claim {
	ids := plan.HostIDs()
	host.QueueLock(b, ids)
	return &Claim{m: m, plan: plan, rows: queueHosts(b, ids, m.cfg.AllowSimulated, false)}
}

// QueueQuoteClaim queues the locking of a quote and of its hosts. The renter has read the quote before.
func (m *Market) QueueQuoteClaim(b *pgx.Batch, quote Quote, renter id.Org, cluster id.Cluster) *Claim {
	c := &Claim{m: m, renter: renter, cluster: cluster}
	m.queueQuote(b, renter, quote.ID, &c.quote)
	host.QueueHosts(b, quote.Placement.HostIDs(), &c.hosts)
	return c
}

// Fit returns the placement that QueueWrite claims. For a plan, it fits the plan to the hosts' present state or returns
// ErrStale. For a quote, it returns the quote's placement, or Conflict if the quote expired, was cancelled or rented,
// or if one of its hosts is no longer available. now is the time on PostgreSQL's clock, read after the locks; only
// quotes need it.
func (c *Claim) Fit(now time.Time) (Placement, error) {
	if !c.quote.ID.IsZero() {
		c.placement = c.quote.Placement
		return c.placement, c.quote.rentable(c.renter, c.hosts, now)
	}
	hosts, err := c.rows.assemble()
	if err != nil {
		return Placement{}, err
	}
	if c.placement, err = c.m.fit(c.plan, hosts); err != nil {
		return Placement{}, err
	}
	for _, n := range c.placement.Nodes {
		c.lapsed = c.lapsed || c.rows.lapsed(n.GPUs)
	}
	return c.placement, nil
}

// QueueWrite queues the claims for the leases, after the end of the quote if there is one. The batch may include the
// commit: if a GPU is not free, PostgreSQL rejects the batch, and Failure translates its error.
func (c *Claim) QueueWrite(b *pgx.Batch, leases LeaseOf) {
	if q := c.quote; !q.ID.IsZero() {
		db.Queue(b, func(ctx context.Context, dq *dbq.Queries) error {
			return dq.EndQuote(ctx, string(QuoteRented), c.cluster, q.ID)
		})
		host.QueueEndClaims(b, q.ID.UUID(), host.EndRented)
	}
	host.QueueClaims(b, host.ForLease, claimSets(c.placement, func(rank int) uuid.UUID { return leases(rank).UUID() }),
		c.lapsed)
}

// Failure translates the error of a transaction that sent the statements of QueueWrite. If a GPU was not free, Failure
// returns ErrStale for a plan and a fault.Conflict for a quote. It returns any other error unchanged.
func (c *Claim) Failure(err error) error {
	switch {
	case !host.IsTaken(err):
		return err
	case !c.quote.ID.IsZero(): // not rented, since the quote claimed it: it became unhealthy
		return fault.Wrap(err, fault.Conflict, "a GPU of the quote is no longer available: ask for a new one")
	}
	return fmt.Errorf("a GPU is claimed: %w", ErrStale)
}

// recheck locks a plan's hosts and fits the plan to their present state.
func (m *Market) recheck(ctx context.Context, tx *db.Tx, plan Placement) (Placement, error) {
	ids := plan.HostIDs()
	b := &pgx.Batch{}
	host.QueueLock(b, ids)
	rows := queueHosts(b, ids, m.cfg.AllowSimulated, false)
	if err := tx.Send(ctx, b); err != nil {
		return Placement{}, fmt.Errorf("market: lock hosts: %w", err)
	}
	now, err := rows.assemble()
	if err != nil {
		return Placement{}, err
	}
	return m.fit(plan, now)
}

// fit returns the plan on the hosts as they are now, or ErrStale if it no longer fits.
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

// claim inserts the claims of a placement whose hosts are locked. Each node's claims have the ref of its rank.
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

// claimSets returns the GPUs of each node with the ref of its rank.
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

// LeaseOf returns the lease for a rank. It is called once per rank.
type LeaseOf func(rank int) id.Lease
