package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// lockedRental is a rental and what was read under its locks.
type lockedRental struct {
	*rental
	first  bool // no earlier call used the idempotency key
	money  *metering.Beginning
	starts freeStarts
	now    time.Time // PostgreSQL's
}

// deal is what was decided of a rental: what queueWrites writes.
type deal struct {
	*lockedRental
	placed market.Placement
	held   money.Nano
	row    dbq.InsertClusterParams
	view   Cluster
}

// decide fits the plan to what is locked and says how far the money reaches. It reads nothing. Faults as Rent's;
// market.ErrStale asks for another plan.
func (l *lockedRental) decide() (*deal, error) {
	d := &deal{lockedRental: l}
	var err error
	if d.placed, err = l.claim.Fit(l.now); err != nil {
		return nil, err
	}
	if err := l.starts.check(l.c.cfg.StartReserve, l.now); err != nil {
		return nil, err
	}
	if !l.stakes.Covered(l.money.Locked()) {
		if !l.quote.ID.IsZero() {
			return nil, fault.New(fault.Conflict, "the bond of a host of the quote no longer suffices for this gang: ask "+
				"for a new one")
		}
		return nil, fmt.Errorf("a bond is reserved for another gang: %w", market.ErrStale)
	}
	leases := make([]metering.NewLease, len(d.placed.Nodes))
	for i, p := range d.placed.Nodes {
		lease := l.lease(p.Rank)
		leases[i] = newLease(l.id, l.nodes[p.Rank], lease, l.principal.Org, l.c.cfg.Currency, 1, p)
	}
	a, err := l.money.Decide(leases, notAfter(l.now, nil, l.spec.MaxDuration), l.now)
	if err != nil {
		return nil, err
	}
	d.held = a.Held
	if d.row, err = d.cluster(); err != nil {
		return nil, err
	}
	d.view, err = d.viewRow()
	return d, err
}

// cluster is the cluster's row.
func (d *deal) cluster() (dbq.InsertClusterParams, error) {
	open, secrets := d.spec.Split()
	var wrong error
	marshal := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			wrong = err
		}
		return b
	}
	name := d.spec.Name
	if name == "" {
		name = d.id.Short()
	}
	deadline, due := d.now.Add(d.c.cfg.StartTimeout), d.now.Add(lookStarting)
	return dbq.InsertClusterParams{
		ID:            d.id,
		OrgID:         d.principal.Org,
		CreatedBy:     d.principal.User,
		Name:          name,
		Project:       d.spec.ProjectName(),
		Labels:        marshal(d.spec.Labels),
		Spec:          marshal(open),
		Secrets:       d.c.cfg.Box.Seal(marshal(secrets), belongs(d.id)),
		ImageRef:      d.spec.Image,
		NodeCount:     int32(d.spec.Nodes),
		GpusPerNode:   int32(d.spec.GPUsPerNode),
		Rate:          d.placed.Rate,
		Currency:      d.c.cfg.Currency,
		Budget:        d.spec.Budget,
		MaxDurationS:  d.spec.MaxDuration,
		QuoteID:       d.quote.ID,
		Network:       marshal(Network{CIDR: overlay.String(), Scope: d.spec.Network.Scope}),
		CreatedAt:     d.now,
		StartDeadline: &deadline,
		DueAt:         &due,
	}, wrong
}

// belongs binds a cluster's sealed secrets to it.
func belongs(cl id.Cluster) string { return "cluster:" + cl.UUID().String() }

// viewRow is the cluster as reading it back would show it.
func (d *deal) viewRow() (Cluster, error) {
	v, err := plain(dbq.Cluster{
		ID:        d.row.ID,
		OrgID:     d.row.OrgID,
		Name:      d.row.Name,
		Spec:      d.row.Spec,
		State:     string(lifecycle.Provisioning),
		Rate:      d.row.Rate,
		Currency:  d.row.Currency,
		Epoch:     1,
		Network:   d.row.Network,
		CreatedAt: d.row.CreatedAt,
	})
	for _, n := range d.placed.Nodes {
		node := Node{
			Rank:     n.Rank,
			ID:       d.nodes[n.Rank],
			HostID:   n.Host,
			HostName: n.HostName,
			State:    lifecycle.NodePending,
			GPUs:     []GPU{},
			Address:  address(n.Rank),
			Required: true,
			Since:    d.now,
		}
		for _, g := range n.GPUs {
			node.GPUs = append(node.GPUs, GPU{UUID: g.UUID, Model: n.Model})
		}
		v.Nodes = append(v.Nodes, node)
	}
	return v, err
}

func newLease(cl id.Cluster, node id.Node, lease id.Lease, renter id.Org, currency string, epoch int,
	n market.Placed) metering.NewLease {
	l := metering.NewLease{
		ID:           lease,
		Cluster:      cl,
		Node:         node,
		Rank:         n.Rank,
		Host:         n.Host,
		Renter:       renter,
		Operator:     n.HostOrg,
		GPUModel:     n.Model,
		CPUs:         n.CPUCores,
		RAMMB:        n.RAMMB,
		DiskGB:       n.DiskGB,
		ScratchGB:    n.ScratchGB,
		Currency:     currency,
		HostSharePPM: int64(n.HostSharePPM),
		Epoch:        epoch,
		Rate:         n.Rate,
	}
	for _, g := range n.GPUs {
		l.GPUs = append(l.GPUs, g.ID)
	}
	for _, i := range n.Lines {
		l.Items = append(l.Items, metering.PriceItem{
			Label:    i.Text,
			Quantity: i.Quantity,
			Unit:     i.Kind,
			UnitRate: i.UnitPrice,
			Rate:     i.Price,
		})
	}
	return l
}

// overlay is the range of every cluster's network; rank n has base + n + 1. Clusters never meet, so all use the same.
var overlay = netip.MustParsePrefix("10.77.0.0/20")

// address of a rank on the cluster's network.
func address(rank int) string {
	a := overlay.Addr().As4()
	n := rank + 1
	a[2] += byte(n >> 8)
	a[3] = byte(n)
	return netip.AddrFrom4(a).String()
}

// renterFaults are the reasons for which a start fails by the renter's doing.
var renterFaults = []lifecycle.Reason{lifecycle.ReasonImageNotFound, lifecycle.ReasonImageUnauthorized,
	lifecycle.ReasonImageRefused, lifecycle.ReasonImageTooBig,
	lifecycle.ReasonImageWrongArch,
	lifecycle.ReasonImageNewerCUDA, lifecycle.ReasonRegistryAway, lifecycle.ReasonCommandNotFound,
	lifecycle.ReasonReleasedByUser, lifecycle.ReasonRegistrySlow}

// quickExit is how soon after its start a workload must fail to count as a failed start.
const quickExit = 5 * time.Second

// freeStarts are the starts of an organisation that hold or held GPUs for free.
type freeStarts struct {
	starts  []fairness.Start
	largest int // GPUs of its largest cluster of late; 0 while it is not asked for
}

// queueStarts queues a read of them. The organisation's wallet is locked before, so that rents at the same time see
// each other.
func queueStarts(b *pgx.Batch, org id.Org, into *freeStarts) {
	reasons := make([]string, len(renterFaults))
	for i, r := range renterFaults {
		reasons[i] = string(r)
	}
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.FreeStarts(ctx, org, reasons, int64(quickExit.Seconds()))
		into.starts = make([]fairness.Start, len(rows))
		for i, r := range rows {
			into.starts[i] = fairness.Start{ClaimedMS: r.CreatedAt.UnixMilli(), GPUs: int(r.Gpus)}
			if r.EndedAt != nil {
				into.starts[i].EndedMS = r.EndedAt.UnixMilli()
			}
		}
		return err
	})
}

// allows reports whether another start is within the quota, and if not, when the next is possible.
func (s freeStarts) allows(reserve time.Duration, now time.Time) (ok bool, free time.Time) {
	ok, at := fairness.StartAllowed(s.starts, s.largest, now.UnixMilli(), reserve)
	return ok, time.UnixMilli(at).UTC()
}

// readLargest reads what an organisation's quota is raised by, if its starts exceed the usual one.
func (s *freeStarts) readLargest(ctx context.Context, q *dbq.Queries, org id.Org, reserve time.Duration,
	now time.Time) error {
	if ok, _ := s.allows(reserve, now); ok {
		return nil
	}
	largest, err := q.LargestCluster(ctx, org)
	if err != nil {
		return fmt.Errorf("largest cluster of %s: %w", org, err)
	}
	s.largest = int(largest)
	return nil
}

// check refuses another start of an organisation whose starts hold too many GPUs for nothing, with the time when the
// next is possible: a start is free until every rank runs, so it must not hold what others would rent.
func (s freeStarts) check(reserve time.Duration, now time.Time) error {
	ok, at := s.allows(reserve, now)
	if ok {
		return nil
	}
	f := fault.New(fault.RateLimited, "Starts that failed, were abandoned or are still under way hold too many GPUs: "+
		"you can start again at %s UTC, or as soon as a start "+
		"that is under way runs. Check image, registry and command; a cluster that has run does not count.",
		at.Format("15:04:05"))
	f.RetryAfter = at.Sub(now)
	f.Extra = map[string]any{"limit": "start_quota", "free_at": at}
	return f
}
