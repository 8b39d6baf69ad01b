package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/market"
	"github.com/musterhq/muster/internal/metering"
)

// overlay is the range of every cluster's network; rank n has base + n + 1. Clusters never meet, so all use the same.
var overlay = netip.MustParsePrefix("10.77.0.0/20")

// RentRequest asks for a cluster: by spec, or by a quote and fields that change neither its placement nor its price.
type RentRequest struct {
	Spec  market.Spec     // validated here; ignored with a quote
	Quote id.Quote        // zero: place now
	Over  json.RawMessage // with a quote: a JSON object of further spec fields; may be empty
}

// Rent rents a cluster. With an idempotency key the first answer is given again. Faults: Invalid, NoCapacity with
// explain, InsufficientFunds when less than 60 s can be paid, QuotaExceeded, Conflict and NotFound for the quote.
func (c *Clusters) Rent(ctx context.Context, p account.Principal, r RentRequest, key idem.Request) (Cluster, error) {
	if r.Quote.IsZero() {
		if err := r.Spec.Validate(); err != nil {
			return Cluster{}, err
		}
	}
	var out Cluster
	err := c.market.Planning(ctx, func(ctx context.Context, plan *market.Planner) error {
		return c.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			earlier, err := key.Begin(ctx, tx)
			switch {
			case err != nil:
				return err
			case earlier != nil:
				return json.Unmarshal(earlier.Body, &out)
			}
			cl, err := c.rent(ctx, tx, p, r, plan)
			if err != nil {
				return err
			}
			if out, err = view(ctx, tx.Q, cl); err != nil {
				return err
			}
			_, err = key.Finish(ctx, tx, http.StatusAccepted, out)
			return err
		})
	})
	if errors.Is(err, market.ErrStale) { // planned afresh several times, and each time somebody was faster
		return Cluster{}, fault.Wrap(err, fault.NoCapacity, "The GPUs that fit are being rented by others at this moment: try again.")
	}
	return out, err
}

// rent does it inside the transaction, in the order of locks: the cluster's row is new, then hosts, claims, leases,
// money.
func (c *Clusters) rent(ctx context.Context, tx *db.Tx, p account.Principal, r RentRequest, plan *market.Planner) (id.Cluster, error) {
	cl := id.New[id.Cluster]()
	leases := map[int]id.Lease{}
	leaseOf := func(rank int) id.Lease {
		if _, ok := leases[rank]; !ok {
			leases[rank] = id.New[id.Lease]()
		}
		return leases[rank]
	}
	spec, placed, err := c.take(ctx, tx, p, r, plan, cl, leaseOf)
	if err != nil {
		return cl, err
	}
	if _, err := account.SSHKeysByID(ctx, tx.Q, p.Org, spec.SSHKeyIDs); err != nil {
		return cl, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return cl, err
	}
	row, err := c.newCluster(cl, p, r.Quote, spec, placed, now)
	if err != nil {
		return cl, err
	}
	if err := tx.Q.InsertCluster(ctx, row); err != nil {
		return cl, fmt.Errorf("insert cluster: %w", err)
	}
	if err := host.RaiseRevision(ctx, tx, c.bus, placed.HostIDs()...); err != nil {
		return cl, fmt.Errorf("raise revisions: %w", err)
	}
	nodes := map[int]id.Node{}
	var terms []metering.NewLease
	for _, n := range placed.Nodes {
		nodes[n.Rank] = id.New[id.Node]()
		terms = append(terms, newLease(cl, nodes[n.Rank], leaseOf(n.Rank), p.Org, row.Currency, n))
	}
	if err := metering.CreateLeases(ctx, tx, terms); err != nil {
		return cl, fmt.Errorf("create leases: %w", err)
	}
	for _, n := range placed.Nodes {
		if err := tx.Q.InsertNode(ctx, dbq.InsertNodeParams{
			ID: nodes[n.Rank], ClusterID: cl, Rank: int32(n.Rank), HostID: n.Host, LeaseID: leaseOf(n.Rank), Address: address(n.Rank), Since: now,
		}); err != nil {
			return cl, fmt.Errorf("insert node: %w", err)
		}
		if err := tx.Q.InsertNodeStatus(ctx, nodes[n.Rank], now); err != nil {
			return cl, fmt.Errorf("insert node status: %w", err)
		}
	}
	auth, err := metering.Authorise(ctx, tx, metering.AuthoriseRequest{
		Cluster: cl, Org: p.Org, Currency: row.Currency, Budget: spec.Budget, NotAfter: notAfter(now, nil, spec.MaxDuration),
	})
	if err != nil {
		return cl, err
	}
	rented, _ := on("", OnRented)
	if err := tx.Q.InsertClusterEvent(ctx, dbq.InsertClusterEventParams{
		ClusterID: cl, At: now, Kind: string(OnRented), Title: rented.Says, Data: []byte("{}"),
		Detail: fmt.Sprintf("%d × %d GPUs at %s per hour; %s held", spec.Nodes, spec.GPUsPerNode, placed.Rate, auth.Held),
	}); err != nil {
		return cl, err
	}
	tx.AfterCommit(func() { c.bus.Changed(bus.TopicCluster(cl), bus.TopicOrg(p.Org)) })
	return cl, audit.Record(ctx, tx, p.Event("cluster.rent", cl.String(), map[string]any{
		"nodes": spec.Nodes, "gpus_per_node": spec.GPUsPerNode, "price_per_hour": placed.Rate.String(), "image": spec.Image,
	}))
}

// take claims the GPUs: those of a quote, or those of a fresh plan.
func (c *Clusters) take(ctx context.Context, tx *db.Tx, p account.Principal, r RentRequest, plan *market.Planner, cl id.Cluster,
	leaseOf market.LeaseOf) (market.Spec, market.Placement, error) {
	if r.Quote.IsZero() {
		want, err := plan.Place(ctx, r.Spec)
		if err != nil {
			return market.Spec{}, market.Placement{}, err
		}
		placed, err := c.market.Hold(ctx, tx, want, leaseOf)
		return r.Spec, placed, err
	}
	q, err := c.market.TakeQuote(ctx, tx, p.Org, r.Quote, cl, leaseOf)
	if err != nil {
		return market.Spec{}, market.Placement{}, err
	}
	spec := q.Spec
	if len(r.Over) > 0 {
		if spec, err = spec.Override(r.Over); err != nil {
			return market.Spec{}, market.Placement{}, err
		}
	}
	return spec, q.Placement, spec.Validate()
}

func (c *Clusters) newCluster(cl id.Cluster, p account.Principal, quote id.Quote, spec market.Spec, placed market.Placement,
	now time.Time) (dbq.InsertClusterParams, error) {
	open, secrets := spec.Split()
	sealed, err := json.Marshal(secrets)
	if err != nil {
		return dbq.InsertClusterParams{}, err
	}
	specJSON, err := json.Marshal(open)
	if err != nil {
		return dbq.InsertClusterParams{}, err
	}
	labels, err := json.Marshal(spec.Labels)
	if err != nil {
		return dbq.InsertClusterParams{}, err
	}
	network, err := json.Marshal(Network{CIDR: overlay.String(), Scope: spec.Network.Scope})
	if err != nil {
		return dbq.InsertClusterParams{}, err
	}
	name := spec.Name
	if name == "" {
		name = cl.Short()
	}
	project := ""
	if spec.Project != nil {
		project = *spec.Project
	}
	deadline, due := now.Add(c.cfg.StartTimeout), now.Add(lookStarting)
	return dbq.InsertClusterParams{
		ID: cl, OrgID: p.Org, CreatedBy: p.User, Name: name, Project: project, Labels: labels, Spec: specJSON,
		Secrets: c.cfg.Box.Seal(sealed, belongs(cl)), ImageRef: spec.Image, NodeCount: int32(spec.Nodes), GpusPerNode: int32(spec.GPUsPerNode),
		Rate: placed.Rate, Currency: c.cfg.Currency, Budget: spec.Budget, MaxDurationS: spec.MaxDuration, QuoteID: quote, Network: network,
		CreatedAt: now, StartDeadline: &deadline, DueAt: &due,
	}, nil
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

// belongs binds a cluster's sealed secrets to it.
func belongs(cl id.Cluster) string { return "cluster:" + cl.UUID().String() }

// address of a rank on the cluster's network.
func address(rank int) string {
	a := overlay.Addr().As4()
	n := rank + 1
	a[2] += byte(n >> 8)
	a[3] = byte(n)
	return netip.AddrFrom4(a).String()
}
