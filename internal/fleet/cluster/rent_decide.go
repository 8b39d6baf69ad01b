package cluster

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
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
		ID: d.row.ID, OrgID: d.row.OrgID, Name: d.row.Name, Spec: d.row.Spec, State: string(Provisioning), Rate: d.row.Rate,
		Currency: d.row.Currency, Epoch: 1, Network: d.row.Network, CreatedAt: d.row.CreatedAt,
	})
	for _, n := range d.placed.Nodes {
		node := Node{
			Rank:     n.Rank,
			ID:       d.nodes[n.Rank],
			HostID:   n.Host,
			HostName: n.HostName,
			State:    NodePending,
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
