package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// RentRequest asks for a cluster: by spec, or by a quote and fields that change neither its placement nor its price.
type RentRequest struct {
	Spec  market.Spec     // validated here; ignored with a quote
	Quote id.Quote        // zero: place now
	Over  json.RawMessage // with a quote: a JSON object of further spec fields; may be empty
}

// errReplayed rolls back a rent whose idempotency key an earlier call used.
var errReplayed = errors.New("cluster: the request was answered before")

// Rent rents a cluster. With an idempotency key the first answer is given again. Faults: Invalid, NoCapacity with
// explain, InsufficientFunds when less than 60 s can be paid, QuotaExceeded, Conflict and NotFound for the quote.
//
// It plans before the transaction, which makes two round trips: lock takes the idempotency key and every lock and reads
// what they guard, decide judges it without asking anything more, and what queueWrites queues goes along with the
// commit.
func (c *Clusters) Rent(ctx context.Context, p account.Principal, r RentRequest, key idem.Request) (Cluster, error) {
	n := &rental{c: c, principal: p, id: id.New[id.Cluster](), leases: map[int]id.Lease{}, nodes: map[int]id.Node{}}
	refused := n.readRequest(ctx, r) // a repeated request is answered even if it would be refused now
	var out Cluster
	var earlier *idem.Answer
	image := n.spec.Image
	if !r.Quote.IsZero() {
		image = "" // nothing is placed
	}
	err := c.market.Planning(ctx, image, func(ctx context.Context, planner *market.Planner) error {
		refused := refused
		if refused == nil {
			refused = n.plan(ctx, planner)
		}
		return n.claimFailure(c.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			locked, err := n.lock(ctx, tx, key, refused == nil)
			if err != nil {
				return err
			}
			if !locked.first {
				if earlier, err = key.Earlier(ctx, tx); err != nil {
					return err
				}
				return errReplayed
			}
			if refused != nil {
				return refused
			}
			deal, err := locked.decide()
			if err != nil {
				return err
			}
			out = deal.view
			b := &pgx.Batch{}
			if err := deal.queueWrites(b, tx, key); err != nil {
				return err
			}
			return tx.Last(b)
		}))
	})
	switch {
	case errors.Is(err, errReplayed):
		err = json.Unmarshal(earlier.Body, &out)
	case errors.Is(err, market.ErrStale): // planned several times, and each time another rent was faster
		err = fault.Wrap(err, fault.NoCapacity, "The GPUs that fit are being rented by others at this moment: try again.")
	}
	return out, err
}

// rental is what is to be rented, and the ids it will have.
type rental struct {
	c         *Clusters
	principal account.Principal
	id        id.Cluster
	leases    map[int]id.Lease // by rank
	nodes     map[int]id.Node

	spec   market.Spec
	quote  market.Quote     // of the zero id: none
	want   market.Placement // the quote's or the plan's
	stakes bond.Stakes
	claim  *market.Claim // nil before lock
}

// readRequest reads what the request says: its quote, its spec, its SSH keys.
func (n *rental) readRequest(ctx context.Context, r RentRequest) (err error) {
	n.spec = r.Spec
	if !r.Quote.IsZero() {
		if n.quote, err = n.c.market.GetQuote(ctx, n.principal, r.Quote); err != nil {
			return err
		}
		if n.spec = n.quote.Spec; n.quote.State != market.QuoteHeld {
			return nil // decide says why not: the key and the locks come first
		}
		if len(r.Over) > 0 {
			if n.spec, err = n.quote.Spec.Override(r.Over); err != nil {
				return err
			}
		}
	}
	if err := n.spec.Validate(); err != nil {
		return err
	}
	_, err = account.SSHKeysByID(ctx, n.c.db.Q, n.principal.Org, n.spec.SSHKeyIDs)
	return err
}

// plan chooses the hosts: those of the quote, or those that are cheapest at present.
func (n *rental) plan(ctx context.Context, planner *market.Planner) (err error) {
	if n.want = n.quote.Placement; n.quote.ID.IsZero() {
		if n.want, err = planner.Place(ctx, n.principal.Org, n.spec); err != nil {
			return err
		}
	}
	n.stakes = stakesOf(n.id, n.c.cfg.Currency, n.want, n.lease)
	return nil
}

// lease of a rank.
func (n *rental) lease(rank int) id.Lease {
	if _, ok := n.leases[rank]; !ok {
		n.leases[rank], n.nodes[rank] = id.New[id.Lease](), id.New[id.Node]()
	}
	return n.leases[rank]
}

// lock takes the idempotency key and, of a rental that is planned, all locks, and reads what it is decided by: in the
// order of locks, in one round trip. The cluster's own row is new, so nobody waits for it.
func (n *rental) lock(ctx context.Context, tx *db.Tx, key idem.Request, planned bool) (*lockedRental, error) {
	b := &pgx.Batch{}
	l := &lockedRental{rental: n}
	key.Queue(b, &l.first)
	if planned {
		if n.quote.ID.IsZero() {
			n.claim = n.c.market.QueueClaim(b, n.want)
		} else {
			n.claim = n.c.market.QueueQuoteClaim(b, n.quote, n.principal.Org, n.id)
		}
		var err error
		if l.money, err = metering.QueueBegin(b, tx, metering.AuthoriseRequest{
			Cluster:  n.id,
			Org:      n.principal.Org,
			Project:  n.spec.ProjectName(),
			Currency: n.c.cfg.Currency,
			Budget:   n.spec.Budget,
		}, n.stakes.Accounts()...); err != nil {
			return nil, err
		}
		queueStarts(b, n.principal.Org, &l.starts)
		db.ReadNow(b, &l.now)
	}
	if err := tx.Send(ctx, b); err != nil {
		return nil, fmt.Errorf("lock what cluster %s is rented with: %w", n.id, err)
	}
	if !planned || !l.first {
		return l, nil
	}
	return l, l.starts.readLargest(ctx, tx.Q, n.principal.Org, n.c.cfg.StartReserve, l.now)
}

// claimFailure explains the error of the transaction when a GPU could not be claimed.
func (n *rental) claimFailure(err error) error {
	if n.claim == nil {
		return err
	}
	return n.claim.Failure(err)
}

// queueWrites queues all that the rent writes: the claims and the hosts' new revisions, the cluster, its nodes and
// leases, the money it holds, its first event, the audit record, and the answer to the idempotency key. After the
// commit the hosts and the pages that show the cluster are woken.
func (d *deal) queueWrites(b *pgx.Batch, tx *db.Tx, key idem.Request) error {
	d.claim.QueueWrite(b, d.lease)
	host.QueueRevision(b, tx, d.c.bus, d.placed.HostIDs())
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
	if err := d.money.QueueWrite(b); err != nil {
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
	if err := audit.Queue(b, d.principal.Event("cluster.rent", d.id.String(), map[string]any{
		"nodes":          d.spec.Nodes,
		"gpus_per_node":  d.spec.GPUsPerNode,
		"price_per_hour": d.placed.Rate.String(),
		"image":          d.spec.Image,
	})); err != nil {
		return err
	}
	tx.AfterCommit(func() { d.c.bus.Changed(bus.TopicCluster(d.id), bus.TopicOrg(d.principal.Org)) })
	return key.QueueFinish(b, http.StatusAccepted, d.view)
}
