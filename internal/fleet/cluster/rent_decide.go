package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// deal is what was decided of a rental: what queueWrites writes.
type deal struct {
	*lockedRental
	placed market.Placement
	lapsed bool // some of its GPUs still have claims of expired quotes
	held   money.Nano
	row    dbq.InsertClusterParams
	view   Cluster
}

// decide fits the plan to what is locked and decides how far the money reaches. It reads nothing, unless the starts of
// the organisation exceed the usual quota. Faults as Rent's; on market.ErrStale another plan is needed.
func (l *lockedRental) decide(ctx context.Context, tx *db.Tx) (d *deal, err error) {
	d = &deal{lockedRental: l}
	if l.quoted != nil {
		d.placed, err = l.quoted.Rentable(l.now)
	} else if d.placed, err = l.hosts.Fit(l.want); err == nil {
		d.lapsed = l.hosts.Lapsed(d.placed)
	}
	if err != nil {
		return nil, err
	}
	if err := l.checkStarts(ctx, tx); err != nil {
		return nil, err
	}
	if !l.stakes.Covered(l.money.Locked()) {
		if l.quoted != nil {
			return nil, fault.New(fault.Conflict, "the bond of a host of the quote no longer suffices for this gang: ask "+
				"for a new one")
		}
		return nil, fmt.Errorf("a bond is reserved for another gang: %w", market.ErrStale)
	}
	a, err := l.money.Decide(notAfter(l.now, nil, l.spec.MaxDuration), l.now)
	if err != nil {
		return nil, err
	}
	d.held = a.Held
	return d, d.describe()
}

// describe sets the cluster's row, and the cluster as reading it back would show it.
func (d *deal) describe() (err error) {
	open, secrets := d.spec.Split()
	var labels, spec, hidden, network []byte
	for _, v := range []struct {
		into *[]byte
		from any
	}{
		{&labels, d.spec.Labels}, {&spec, open}, {&hidden, secrets},
		{&network, Network{CIDR: overlay.String(), Scope: d.spec.Network.Scope}},
	} {
		if *v.into, err = json.Marshal(v.from); err != nil {
			return err
		}
	}
	deadline, due := d.now.Add(d.c.cfg.StartTimeout), d.now.Add(lookStarting)
	d.row = dbq.InsertClusterParams{
		ID: d.id, OrgID: d.principal.Org, CreatedBy: d.principal.User, Name: cmp.Or(d.spec.Name, d.id.Short()),
		Project: d.spec.ProjectName(), Labels: labels, Spec: spec, Secrets: d.c.cfg.Box.Seal(hidden, belongs(d.id)),
		ImageRef: d.spec.Image, NodeCount: int32(d.spec.Nodes), GpusPerNode: int32(d.spec.GPUsPerNode),
		Rate: d.placed.Rate, Currency: d.c.cfg.Currency, Budget: d.spec.Budget, MaxDurationS: d.spec.MaxDuration,
		QuoteID: d.quote.ID, Network: network, CreatedAt: d.now, StartDeadline: &deadline, DueAt: &due,
	}
	d.view, err = plain(dbq.Cluster{
		ID: d.id, OrgID: d.row.OrgID, Name: d.row.Name, Spec: spec, State: string(lifecycle.Provisioning),
		Rate: d.row.Rate, Currency: d.row.Currency, Epoch: 1, Network: network, CreatedAt: d.now,
	})
	for _, n := range d.placed.Nodes {
		node := Node{
			Rank: n.Rank, ID: d.nodes[n.Rank], HostID: n.Host, HostName: n.HostName, State: lifecycle.NodePending,
			GPUs: []GPU{}, Address: address(n.Rank), Required: true, Since: d.now,
		}
		for _, g := range n.GPUs {
			node.GPUs = append(node.GPUs, GPU{UUID: g.UUID, Model: n.Model})
		}
		d.view.Nodes = append(d.view.Nodes, node)
	}
	return err
}

// belongs binds a cluster's sealed secrets to it.
func belongs(cl id.Cluster) string { return "cluster:" + cl.UUID().String() }

// queueWrites queues all that the rent writes: the claims and the hosts' new revisions, the cluster, its nodes and
// leases, the money it holds, its first event, and the audit record. After the commit the hosts and the pages that show
// the cluster are woken.
func (d *deal) queueWrites(b *pgx.Batch, tx *db.Tx) error {
	if d.quoted != nil {
		market.QueueRented(b, d.quote.ID, d.id)
	}
	host.QueueLeaseClaims(b, tx, d.c.bus, d.placed.ClaimSets(d.lease), d.lapsed)
	db.Write(b, (*dbq.Queries).InsertCluster, d.row)
	for _, n := range d.placed.Nodes {
		db.Write(b, (*dbq.Queries).InsertNode, dbq.InsertNodeParams{
			ID:        d.nodes[n.Rank],
			ClusterID: d.id,
			Rank:      int32(n.Rank),
			HostID:    n.Host,
			LeaseID:   d.lease(n.Rank),
			Address:   address(n.Rank),
			Since:     d.now,
		})
	}
	if err := d.money.QueueWrite(b, d.newLeases(d.placed)); err != nil {
		return err
	}
	if err := d.stakes.QueueWrite(b, d.money.Locked()); err != nil {
		return err
	}
	event, _ := lifecycle.On("", lifecycle.OnRented)
	gpus := "GPUs"
	if d.spec.GPUsPerNode == 1 {
		gpus = "GPU"
	}
	db.Write(b, (*dbq.Queries).InsertClusterEvent, dbq.InsertClusterEventParams{
		ClusterID: d.id,
		At:        d.now,
		Kind:      string(lifecycle.OnRented),
		Title:     event.Title,
		Data:      []byte("{}"),
		Detail: fmt.Sprintf("%d × %d %s at %s per hour; %s held", d.spec.Nodes, d.spec.GPUsPerNode, gpus,
			d.placed.Rate.Plain(), d.held.Plain()),
	})
	tx.AfterCommit(func() { d.c.bus.Changed(bus.TopicCluster(d.id), bus.TopicOrg(d.principal.Org)) })
	return audit.Queue(b, d.principal.Event("cluster.rent", d.id.String(), map[string]any{
		"nodes":          d.spec.Nodes,
		"gpus_per_node":  d.spec.GPUsPerNode,
		"price_per_hour": d.placed.Rate.String(),
		"image":          d.spec.Image,
	}))
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

// renterFaults are the lifecycle.Reasons for which a start fails by the renter's doing.
var renterFaults = []string{
	string(lifecycle.ReasonImageNotFound), string(lifecycle.ReasonImageUnauthorized),
	string(lifecycle.ReasonImageRefused), string(lifecycle.ReasonImageTooBig), string(lifecycle.ReasonImageWrongArch),
	string(lifecycle.ReasonImageNewerCUDA), string(lifecycle.ReasonRegistryAway),
	string(lifecycle.ReasonCommandNotFound), string(lifecycle.ReasonReleasedByUser),
	string(lifecycle.ReasonRegistrySlow),
}

// quickExit is how soon after its start a workload must fail to count as a failed start.
const quickExit = 5 * time.Second

// checkStarts returns RateLimited if the organisation's starts, past ones that failed and those under way, hold too
// many GPUs for nothing, with the time when the next start is possible: a start is free until every rank runs, so it
// must not keep what others would rent. An organisation that ran larger clusters within 30 days may hold more.
func (l *lockedRental) checkStarts(ctx context.Context, tx *db.Tx) error {
	starts := make([]fairness.Start, len(l.starts))
	for i, r := range l.starts {
		starts[i] = fairness.Start{ClaimedMS: r.CreatedAt.UnixMilli(), GPUs: int(r.Gpus)}
		if r.EndedAt != nil {
			starts[i].EndedMS = r.EndedAt.UnixMilli()
		}
	}
	ok, freeMS := fairness.StartAllowed(starts, 0, l.now.UnixMilli(), l.c.cfg.StartReserve)
	if !ok {
		largest, err := tx.Q.LargestCluster(ctx, l.principal.Org)
		if err != nil {
			return fmt.Errorf("largest cluster of %s: %w", l.principal.Org, err)
		}
		ok, freeMS = fairness.StartAllowed(starts, int(largest), l.now.UnixMilli(), l.c.cfg.StartReserve)
	}
	if ok {
		return nil
	}
	at := time.UnixMilli(freeMS).UTC()
	f := fault.New(fault.RateLimited, "Starts that failed, were abandoned or are still under way hold too many GPUs: "+
		"you can start again at %s UTC, or as soon as a start "+
		"that is under way runs. Check image, registry and command; a cluster that has run does not count.",
		at.Format("15:04:05"))
	f.RetryAfter = at.Sub(l.now)
	f.Extra = map[string]any{"limit": "start_quota", "free_at": at}
	return f
}
