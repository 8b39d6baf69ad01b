package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/market"
	"github.com/musterhq/muster/internal/metering"
	"github.com/musterhq/muster/internal/money"
)

// overlay is the range of every cluster's network; rank n has base + n + 1. Clusters never meet, so all use the same.
var overlay = netip.MustParsePrefix("10.77.0.0/20")

// rental is a rent under way, inside its transaction.
type rental struct {
	row    dbq.InsertClusterParams
	spec   market.Spec
	placed market.Placement
	leases map[int]id.Lease
	nodes  map[int]id.Node
	now    time.Time // PostgreSQL's
	held   money.Nano
}

// lease of a rank.
func (r *rental) lease(rank int) id.Lease {
	if _, ok := r.leases[rank]; !ok {
		r.leases[rank], r.nodes[rank] = id.New[id.Lease](), id.New[id.Node]()
	}
	return r.leases[rank]
}

// insert writes the cluster and its nodes.
func (r *rental) insert(ctx context.Context, tx *db.Tx) error {
	if err := tx.Q.InsertCluster(ctx, r.row); err != nil {
		return err
	}
	for _, n := range r.placed.Nodes {
		lease := r.lease(n.Rank)
		if err := tx.Q.InsertNode(ctx, dbq.InsertNodeParams{
			ID: r.nodes[n.Rank], ClusterID: r.row.ID, Rank: int32(n.Rank), HostID: n.Host, LeaseID: lease, Address: address(n.Rank), Since: r.now,
		}); err != nil {
			return err
		}
		if err := tx.Q.InsertNodeStatus(ctx, r.nodes[n.Rank], r.now); err != nil {
			return err
		}
	}
	return nil
}

// pay holds the money and writes the leases it pays for.
func (r *rental) pay(ctx context.Context, tx *db.Tx) error {
	leases := make([]metering.NewLease, len(r.placed.Nodes))
	for i, n := range r.placed.Nodes {
		lease := r.lease(n.Rank)
		leases[i] = newLease(r.row.ID, r.nodes[n.Rank], lease, r.row.OrgID, r.row.Currency, n)
	}
	a, err := metering.Begin(ctx, tx, leases, metering.AuthoriseRequest{
		Cluster: r.row.ID, Org: r.row.OrgID, Currency: r.row.Currency, Budget: r.spec.Budget, NotAfter: notAfter(r.now, nil, r.spec.MaxDuration),
	})
	r.held = a.Held
	return err
}

// note leaves the rent's trail.
func (r *rental) note(ctx context.Context, tx *db.Tx, p account.Principal) error {
	rented, _ := on("", OnRented)
	err := tx.Q.InsertClusterEvent(ctx, dbq.InsertClusterEventParams{
		ClusterID: r.row.ID, At: r.now, Kind: string(OnRented), Title: rented.Says, Data: []byte("{}"),
		Detail: fmt.Sprintf("%d × %d GPUs at %s per hour; %s held", r.spec.Nodes, r.spec.GPUsPerNode, r.placed.Rate, r.held),
	})
	if err != nil {
		return err
	}
	return audit.Record(ctx, tx, p.Event("cluster.rent", r.row.ID.String(), map[string]any{
		"nodes": r.spec.Nodes, "gpus_per_node": r.spec.GPUsPerNode, "price_per_hour": r.placed.Rate.String(), "image": r.spec.Image,
	}))
}

// view is the cluster as reading it back would show it.
func (r *rental) view() (Cluster, error) {
	v, err := plain(dbq.Cluster{
		ID: r.row.ID, OrgID: r.row.OrgID, Name: r.row.Name, Spec: r.row.Spec, State: string(Provisioning), Rate: r.row.Rate,
		Currency: r.row.Currency, Epoch: 1, Network: r.row.Network, CreatedAt: r.row.CreatedAt,
	})
	for _, n := range r.placed.Nodes {
		row := dbq.ClusterNodesRow{HostName: n.HostName, Required: true, NodeStatus: dbq.NodeStatus{Epoch: 1, Progress: []byte("{}")}, Node: dbq.Node{
			ID: r.nodes[n.Rank], Rank: int32(n.Rank), HostID: n.Host, Epoch: 1, State: string(NodePending), Address: address(n.Rank), Since: r.now,
		}}
		device := map[id.GPU]GPU{}
		for _, g := range n.GPUs {
			row.GPUIds = append(row.GPUIds, g.ID)
			device[g.ID] = GPU{UUID: g.UUID, Model: n.Model}
		}
		v.Nodes = append(v.Nodes, viewNode(row, device))
	}
	return v, err
}

func newLease(cl id.Cluster, node id.Node, lease id.Lease, renter id.Org, currency string, n market.Placed) metering.NewLease {
	l := metering.NewLease{
		ID: lease, Cluster: cl, Node: node, Rank: n.Rank, Host: n.Host, Renter: renter, Operator: n.HostOrg, GPUModel: n.Model,
		CPUs: n.CPUCores, RAMMB: n.RAMMB, DiskGB: n.DiskGB, Currency: currency, HostSharePPM: int64(n.HostSharePPM), Epoch: 1, Rate: n.Rate,
	}
	for _, g := range n.GPUs {
		l.GPUs = append(l.GPUs, g.ID)
	}
	for _, i := range n.Lines {
		l.Items = append(l.Items, metering.PriceItem{Label: i.Text, Quantity: i.Quantity, Unit: i.Kind, UnitRate: i.UnitPrice, Rate: i.Price})
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
