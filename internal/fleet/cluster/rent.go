package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// RentRequest is a request for a cluster: a spec, or a quote and fields that change neither its placement nor its price.
type RentRequest struct {
	Spec  market.Spec     // validated by Rent; ignored with a quote
	Quote id.Quote        // zero: place now
	Over  json.RawMessage // with a quote: a JSON object of further spec fields; may be empty
}

// Rent rents a cluster. With an idempotency key, a repeated call returns the first answer. Faults: Invalid, NoCapacity
// with explain, InsufficientFunds if less than 60 s can be paid, QuotaExceeded, RateLimited for too many failed starts,
// Conflict and NotFound for the quote.
//
// The hosts are chosen before the transaction, which makes two round trips: lock takes the idempotency key and every
// lock, and reads what they guard; decide decides without reading anything more; what queueWrites queues is sent with
// the commit.
func (c *Clusters) Rent(ctx context.Context, p account.Principal, r RentRequest,
	key idem.Request) (out Cluster, done idem.Outcome, err error) {
	n := &rental{c: c, principal: p, id: id.New[id.Cluster](), leases: map[int]id.Lease{}, nodes: map[int]id.Node{}}
	claim := func(ctx context.Context, plan market.Placement, refused error) error {
		l := &lockedRental{rental: n, want: plan}
		out, done, err = idem.OnceInBatches(ctx, c.db, key, func(b *pgx.Batch, tx *db.Tx) error {
			if refused != nil {
				return nil // but the key: a repeated request is answered even if it would be refused now
			}
			return l.lock(b, tx)
		}, func(ctx context.Context, b *pgx.Batch, tx *db.Tx) (Cluster, error) {
			if refused != nil {
				return Cluster{}, refused
			}
			d, err := l.decide(ctx, tx)
			if err != nil {
				return Cluster{}, err
			}
			return d.view, d.queueWrites(b, tx)
		})
		return market.ClaimFailure(err, !r.Quote.IsZero())
	}
	request, refused := n.readRequest(ctx, r)
	if refused != nil || !r.Quote.IsZero() {
		err = claim(ctx, n.quote.Placement, refused)
	} else {
		err = c.market.Planning(ctx, request, claim)
	}
	if errors.Is(err, market.ErrStale) { // planned several times, and each time another rent was faster
		err = fault.Wrap(err, fault.NoCapacity, "The GPUs that fit are being rented by others at this moment: try again.")
	}
	return out, done, err
}

// rental is what is to be rented, and the ids it will have.
type rental struct {
	c         *Clusters
	principal account.Principal
	id        id.Cluster
	leases    map[int]id.Lease // by rank
	nodes     map[int]id.Node
	spec      market.Spec
	quote     market.Quote // of the zero id: none
}

// readRequest reads the quote, the spec and the SSH keys of a request. Without a quote it returns what is to be placed.
func (n *rental) readRequest(ctx context.Context, r RentRequest) (request market.Request, err error) {
	n.spec = r.Spec
	if !r.Quote.IsZero() {
		if n.quote, err = n.c.market.GetQuote(ctx, n.principal, r.Quote); err != nil {
			return request, err
		}
		if n.spec = n.quote.Spec; n.quote.State != market.QuoteHeld {
			return request, nil // decide returns why not: the key and the locks come first
		}
		if len(r.Over) > 0 {
			if n.spec, err = n.quote.Spec.Override(r.Over); err != nil {
				return request, err
			}
		}
	}
	if err := n.spec.Validate(); err != nil {
		return request, err
	}
	if _, err := account.SSHKeysByID(ctx, n.c.db.Q, n.principal.Org, n.spec.SSHKeyIDs); err != nil {
		return request, err
	}
	return n.spec.Request(n.principal.Org)
}

// lease returns the id of the lease of a rank.
func (n *rental) lease(rank int) id.Lease {
	if _, ok := n.leases[rank]; !ok {
		n.leases[rank], n.nodes[rank] = id.New[id.Lease](), id.New[id.Node]()
	}
	return n.leases[rank]
}

// newLeases returns the leases of a placement's nodes.
func (n *rental) newLeases(p market.Placement) []metering.NewLease {
	out := make([]metering.NewLease, len(p.Nodes))
	for i, placed := range p.Nodes {
		lease := n.lease(placed.Rank)
		out[i] = newLease(n.id, n.nodes[placed.Rank], lease, n.principal.Org, n.c.cfg.Currency, 1, placed)
	}
	return out
}

// lockedRental is a rental and what is read under its locks.
type lockedRental struct {
	*rental
	want   market.Placement    // the quote's or the plan's
	hosts  *market.HostRows    // without a quote: the plan's hosts
	quoted *market.LockedQuote // with a quote
	money  *metering.Beginning
	stakes bond.Stakes
	starts []dbq.FreeStartsRow // see freeStarts
	now    time.Time           // PostgreSQL's clock
}

// lock queues all locks in their order, and the reads of what they guard. The cluster's own row is new, so no other
// transaction waits for it.
func (l *lockedRental) lock(b *pgx.Batch, tx *db.Tx) (err error) {
	if l.quote.ID.IsZero() {
		l.hosts = l.c.market.QueueHosts(b, l.want.HostIDs(), true)
	} else {
		l.quoted = l.c.market.QueueQuote(b, l.quote, l.principal.Org)
	}
	l.stakes = stakesOf(l.id, l.c.cfg.Currency, l.want, l.lease)
	l.money, err = metering.QueueBegin(b, tx, metering.AuthoriseRequest{
		Cluster:  l.id,
		Org:      l.principal.Org,
		Project:  l.spec.ProjectName(),
		Currency: l.c.cfg.Currency,
		Budget:   l.spec.Budget,
	}, l.newLeases(l.want), l.stakes.Accounts()...)
	// Under the lock of the organisation's wallet, so that simultaneous rents see each other.
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		l.starts, err = q.FreeStarts(ctx, l.principal.Org, renterFaults, int64(quickExit.Seconds()))
		return err
	})
	db.ReadNow(b, &l.now)
	return err
}
