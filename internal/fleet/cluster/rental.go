package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// overlay is the range of every cluster's network; rank n has base + n + 1. Clusters never meet, so all use the same.
var overlay = netip.MustParsePrefix("10.77.0.0/20")

// rental is a rent under way, inside its transaction. It makes three round trips, in the order of locks: begin takes
// the idempotency key and the hosts' locks and reads the hosts, take claims the GPUs and locks the money, and all that
// write writes goes along with the commit. The cluster's own row is new: nobody waits for it.
type rental struct {
	c         *Clusters
	principal account.Principal
	request   RentRequest
	id        id.Cluster
	leases    map[int]id.Lease
	nodes     map[int]id.Node
	claim     *market.PendingClaim // zero with a quote

	// After take:
	spec   market.Spec
	placed market.Placement
	row    dbq.InsertClusterParams
	now    time.Time // PostgreSQL's
	money  *metering.Beginning
	held   money.Nano
	stakes bond.Stakes
}

// begin plans, takes the key and locks the hosts of the plan. When the key was used before, the answer is the one given
// then. Without a plan there is nothing to lock, and the key has the first word.
func (r *rental) begin(ctx context.Context, tx *db.Tx, plan *market.Planner,
	key idem.Request) (earlier *idem.Answer, err error) {
	var want market.Placement
	var unplaced error
	if r.request.Quote.IsZero() {
		want, unplaced = plan.Place(ctx, r.principal.Org, r.request.Spec)
	}
	pipe, inner := tx.Pipe()
	mine := key.Queue(ctx, pipe)
	r.claim = r.c.market.QueueClaim(ctx, pipe, inner, want)
	pipe.Send(ctx)
	first := mine()
	r.claim.Read()
	if err := pipe.Close(); err != nil {
		return nil, fmt.Errorf("take the key and the hosts: %w", err)
	}
	if !first {
		return key.Earlier(ctx, tx)
	}
	return nil, unplaced
}

// take claims the GPUs, those of the quote or those of the plan, raises the hosts' revisions and locks the money.
func (r *rental) take(ctx context.Context, tx *db.Tx) error {
	quoted := !r.request.Quote.IsZero()
	if err := r.freezeTerms(ctx, tx); err != nil {
		return err
	}
	if _, err := account.SSHKeysByID(ctx, tx.Q, r.principal.Org, r.spec.SSHKeyIDs); err != nil {
		return err
	}
	r.stakes = stakesOf(r.id, r.c.cfg.Currency, r.placed, r.lease)
	pipe := db.NewPipe(tx.Q)
	claimed := func() error { return nil }
	if !quoted {
		claimed = r.claim.QueueClaims(ctx, pipe, r.lease)
	}
	raised := host.QueueRevision(ctx, pipe, tx, r.c.bus, r.placed.HostIDs())
	begun, err := metering.QueueBegin(ctx, pipe, tx, metering.AuthoriseRequest{
		Cluster: r.id, Org: r.principal.Org, Project: r.spec.ProjectName(), Currency: r.c.cfg.Currency, Budget: r.spec.Budget,
	}, r.stakes.Accounts()...)
	if err != nil {
		return err
	}
	clock := pipe.Now()
	freeStarts := queueStarts(ctx, pipe, r.principal.Org)
	pipe.Send(ctx)
	taken := claimed()
	raised()
	var unlocked error
	r.money, unlocked = begun()
	r.now = clock()
	starts := freeStarts()
	if err := pipe.Close(); err != nil {
		return fmt.Errorf("claim GPUs and lock the money of %s: %w", r.id, err)
	}
	if err := cmp.Or(taken, unlocked); err != nil {
		return err
	}
	if err := r.c.startQuota(ctx, tx.Q, r.principal.Org, starts, r.now); err != nil {
		return err
	}
	r.wakePages(tx)
	if !r.stakes.Covered(r.money.Locked()) {
		if quoted {
			return fault.New(fault.Conflict, "the bond of a host of the quote no longer suffices for this gang: ask for a "+
				"new one")
		}
		return fmt.Errorf("a bond is reserved for another gang: %w", market.ErrStale)
	}
	return r.afford()
}

// freezeTerms says what is rented: what the quote holds, or the plan as it fits the locked hosts.
func (r *rental) freezeTerms(ctx context.Context, tx *db.Tx) error {
	if r.request.Quote.IsZero() {
		r.spec = r.request.Spec
		err := r.claim.Fit()
		r.placed = r.claim.Placement
		return err
	}
	q, err := r.c.market.TakeQuote(ctx, tx, r.principal.Org, r.request.Quote, r.id, r.lease)
	if err != nil {
		return err
	}
	r.spec, r.placed = q.Spec, q.Placement
	if len(r.request.Over) > 0 {
		if r.spec, err = q.Spec.Override(r.request.Over); err != nil {
			return err
		}
	}
	return r.spec.Validate()
}

// afford decides how far the money reaches, for leases at the prices of the placement.
func (r *rental) afford() error {
	leases := make([]metering.NewLease, len(r.placed.Nodes))
	for i, n := range r.placed.Nodes {
		lease := r.lease(n.Rank)
		leases[i] = newLease(r.id, r.nodes[n.Rank], lease, r.principal.Org, r.c.cfg.Currency, 1, n)
	}
	a, err := r.money.Decide(leases, notAfter(r.now, nil, r.spec.MaxDuration), r.now)
	if err != nil {
		return err
	}
	r.held = a.Held
	r.row, err = r.newCluster()
	return err
}

// wakePages wakes the pages that show the cluster, once it is there.
func (r *rental) wakePages(tx *db.Tx) {
	tx.AfterCommit(func() { r.c.bus.Changed(bus.TopicCluster(r.id), bus.TopicOrg(r.principal.Org)) })
}

// lease of a rank.
func (r *rental) lease(rank int) id.Lease {
	if _, ok := r.leases[rank]; !ok {
		r.leases[rank], r.nodes[rank] = id.New[id.Lease](), id.New[id.Node]()
	}
	return r.leases[rank]
}

// write writes the cluster, its nodes and leases, the money it holds, and the rent's trail.
func (r *rental) write(ctx context.Context, tx *db.Tx) error {
	if err := tx.Q.InsertCluster(ctx, r.row); err != nil {
		return err
	}
	for _, n := range r.placed.Nodes {
		if err := tx.Q.InsertNode(ctx, dbq.InsertNodeParams{
			ID:        r.nodes[n.Rank],
			ClusterID: r.id,
			Rank:      int32(n.Rank),
			HostID:    n.Host,
			LeaseID:   r.lease(n.Rank),
			Address:   address(n.Rank),
			Since:     r.now,
		}); err != nil {
			return err
		}
	}
	if err := r.money.Write(ctx, tx); err != nil {
		return err
	}
	if err := r.stakes.Write(ctx, tx, r.money.Locked()); err != nil {
		return err
	}
	rented, _ := on("", OnRented)
	noun := "GPUs"
	if r.spec.GPUsPerNode == 1 {
		noun = "GPU"
	}
	err := tx.Q.InsertClusterEvent(ctx, dbq.InsertClusterEventParams{
		ClusterID: r.id,
		At:        r.now,
		Kind:      string(OnRented),
		Title:     rented.Title,
		Data:      []byte("{}"),
		Detail: fmt.Sprintf("%d × %d %s at %s per hour; %s held", r.spec.Nodes, r.spec.GPUsPerNode, noun,
			r.placed.Rate.Plain(), r.held.Plain()),
	})
	if err != nil {
		return err
	}
	return audit.Record(ctx, tx, r.principal.Event("cluster.rent", r.id.String(), map[string]any{
		"nodes":          r.spec.Nodes,
		"gpus_per_node":  r.spec.GPUsPerNode,
		"price_per_hour": r.placed.Rate.String(),
		"image":          r.spec.Image,
	}))
}

// view is the cluster as reading it back would show it.
func (r *rental) view() (Cluster, error) {
	v, err := plain(dbq.Cluster{
		ID: r.row.ID, OrgID: r.row.OrgID, Name: r.row.Name, Spec: r.row.Spec, State: string(Provisioning), Rate: r.row.Rate,
		Currency: r.row.Currency, Epoch: 1, Network: r.row.Network, CreatedAt: r.row.CreatedAt,
	})
	for _, n := range r.placed.Nodes {
		row := dbq.ClusterNodesRow{
			HostName:   n.HostName,
			Required:   true,
			NodeStatus: dbq.NodeStatus{Epoch: 1, Progress: []byte("{}")},
			Node: dbq.Node{
				ID:      r.nodes[n.Rank],
				Rank:    int32(n.Rank),
				HostID:  n.Host,
				Epoch:   1,
				State:   string(NodePending),
				Address: address(n.Rank),
				Since:   r.now,
			},
		}
		device := map[id.GPU]GPU{}
		for _, g := range n.GPUs {
			row.GPUIds = append(row.GPUIds, g.ID)
			device[g.ID] = GPU{UUID: g.UUID, Model: n.Model}
		}
		v.Nodes = append(v.Nodes, viewNode(row, device))
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

// address of a rank on the cluster's network.
func address(rank int) string {
	a := overlay.Addr().As4()
	n := rank + 1
	a[2] += byte(n >> 8)
	a[3] = byte(n)
	return netip.AddrFrom4(a).String()
}
