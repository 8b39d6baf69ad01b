package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/data/bucket"
	"github.com/musterhq/muster/internal/data/sharedfs"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// RentRequest is a request for a cluster: a spec, or a quote and fields that change neither its placement nor its
// price.
type RentRequest struct {
	Spec  market.Spec     // validated by Rent; ignored with a quote
	Quote id.Quote        // zero: place now
	Over  json.RawMessage // with a quote: a JSON object of further spec fields; may be empty
}

// Rentals are the rentals of clusters: their beginning, restart and end at the renter's wish.
type Rentals struct {
	db      *db.DB
	market  *market.Market
	bus     *bus.Bus // may be nil
	cfg     *Config
	machine *machine
	views   *Views
}

// Rent rents a cluster. With an idempotency key, a repeated call returns the first answer. Faults: Invalid, NoCapacity
// with explain, InsufficientFunds if less than 60 s can be paid, QuotaExceeded, RateLimited for starts that hold too
// much, Conflict and NotFound for the quote.
//
// The hosts are chosen before the transaction, which makes two round trips: lock takes the idempotency key and every
// lock, and reads what they guard; decide decides without reading anything more; what queueWrites queues is sent with
// the commit.
func (rs *Rentals) Rent(ctx context.Context, p account.Principal, r RentRequest,
	key idem.Request) (out Cluster, done idem.Outcome, err error) {
	n := &rental{rs: rs, principal: p, id: id.New[id.Cluster](), leases: map[int]id.Lease{}, nodes: map[int]id.Node{}}
	sizes, err := rs.modelSizes(ctx)
	if err != nil {
		return out, done, err
	}
	claim := func(ctx context.Context, plan market.Placement, refused error) error {
		l := &lockedRental{rental: n, want: plan, sizes: sizes}
		out, done, err = idem.OnceInBatches(ctx, rs.db, key, func(b *pgx.Batch, tx *db.Tx) error {
			if refused != nil {
				return nil // but the key: a repeated request is answered even if it would be refused now
			}
			return l.lock(b, tx)
		}, func(ctx context.Context, b *pgx.Batch, tx *db.Tx) (Cluster, error) {
			if refused != nil {
				return Cluster{}, refused
			}
			d, err := l.decide()
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
		err = rs.market.Planning(ctx, request, claim)
	}
	if errors.Is(err, market.ErrStale) { // planned several times, and each time another rent was faster
		err = fault.Wrap(err, fault.NoCapacity, "The GPUs that fit are being rented by others at this moment: try again.")
	}
	return out, done, err
}

// rental is what is to be rented, and the ids it will have.
type rental struct {
	rs        *Rentals
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
		if n.quote, err = n.rs.market.GetQuote(ctx, n.principal, r.Quote); err != nil {
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
	if err := n.spec.Validate(true); err != nil {
		return request, err
	}
	if err := n.quote.Placement.Runs(n.spec); !n.quote.ID.IsZero() && err != nil {
		return request, err
	}
	if _, err := account.SSHKeysByID(ctx, n.rs.db.Q, n.principal.Org, n.spec.SSHKeyIDs); err != nil {
		return request, err
	}
	if request, err = n.spec.Request(n.principal.Org); err != nil {
		return request, err
	}
	if err := sharedfs.Check(ctx, n.rs.db.Q, n.spec.SharedFS()); err != nil {
		return request, err // no host has it, so that placement would find no capacity
	}
	_, err = request.ReadVolumes(ctx, n.rs.db.Q, n.spec)
	return request, err
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
		out[i] = newLease(n.id, n.nodes[placed.Rank], lease, n.principal.Org, n.rs.cfg.Currency, 1, placed)
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
	claims *volume.Claims
	mounts *bucket.Claims
	shares *sharedfs.Claims
	sizes  map[string]int64 // GPUs of the market by model
	starts *market.Starts
	now    time.Time // PostgreSQL's clock
}

// lock queues all locks in their order, and the reads of what they guard. The cluster's own row is new, so no other
// transaction waits for it.
func (l *lockedRental) lock(b *pgx.Batch, tx *db.Tx) (err error) {
	if l.rs.cfg.Starts.Window > 0 {
		account.QueueLockCircle(b, l.principal.Org)
	}
	if l.quote.ID.IsZero() {
		l.hosts = l.rs.market.QueueHosts(b, l.want.HostIDs(), true)
	} else {
		l.quoted = l.rs.market.QueueQuote(b, l.quote, l.principal.Org)
	}
	l.claims = volume.QueueClaims(b, l.principal.Org, l.spec.Volumes())
	l.mounts = bucket.QueueClaims(b, l.principal.Org, l.spec.Buckets())
	l.shares = sharedfs.QueueClaims(b, l.principal.Org, l.spec.SharedFS())
	l.stakes = stakesOf(l.id, l.rs.cfg.Currency, l.want, l.lease)
	l.money, err = metering.QueueBegin(b, tx, metering.AuthoriseRequest{
		Cluster:  l.id,
		Org:      l.principal.Org,
		Project:  l.spec.ProjectName(),
		Currency: l.rs.cfg.Currency,
		Budget:   l.spec.Budget,
	}, l.newLeases(l.want), l.stakes.Accounts()...)
	l.starts = l.rs.market.QueueStarts(b, l.rs.cfg.Starts, l.principal.Org, l.quote.ID, l.sizes)
	db.ReadNow(b, &l.now)
	return err
}

// deal is what was decided of a rental: what queueWrites writes.
type deal struct {
	*lockedRental
	placed market.Placement
	lapsed bool // some of its GPUs still have claims of expired quotes
	// covered: what was paid covers the start; see fairness.StartRules.
	covered bool
	held    money.Nano
	row     dbq.InsertClusterParams
	view    Cluster
}

// decide fits the plan to what is locked and decides how far the money reaches. It reads nothing. Faults as Rent's; on
// market.ErrStale another plan is needed.
func (l *lockedRental) decide() (d *deal, err error) {
	d = &deal{lockedRental: l}
	if l.quoted != nil {
		d.placed, err = l.quoted.Rentable(l.now)
	} else if d.placed, err = l.hosts.Fit(l.want); err == nil {
		d.lapsed = l.hosts.Lapsed(d.placed)
	}
	if err != nil {
		return nil, err
	}
	if err := l.money.Owed().Admit(l.now, l.rs.cfg.Currency); err != nil {
		return nil, err
	}
	if d.covered, err = l.starts.Judge(d.placed, l.now); err != nil {
		return nil, err
	}
	if !l.stakes.Covered(l.money.Locked()) {
		if l.quoted != nil {
			return nil, fault.New(fault.Conflict, "the bond of a host of the quote no longer suffices for this gang: ask "+
				"for a new one")
		}
		return nil, fmt.Errorf("a bond is reserved for another gang: %w", market.ErrStale)
	}
	if err := l.claims.Decide(l.now); err != nil {
		return nil, err
	}
	if err := l.mounts.Decide(); err != nil {
		return nil, err
	}
	if err := l.shares.Decide(); err != nil {
		return nil, err
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
		{&network, Network{CIDR: overlay.String(), Scope: string(d.spec.Network.Scope)}},
	} {
		if *v.into, err = json.Marshal(v.from); err != nil {
			return err
		}
	}
	deadline, due := d.now.Add(d.rs.cfg.StartTimeout), d.now.Add(lookStarting)
	d.row = dbq.InsertClusterParams{
		ID: d.id, OrgID: d.principal.Org, CreatedBy: d.principal.User, Name: cmp.Or(d.spec.Name, d.id.Short()),
		Project: d.spec.ProjectName(), Labels: labels, Spec: spec, Secrets: d.rs.cfg.Box.Seal(hidden, belongs(d.id)),
		ImageRef: d.spec.Image, NodeCount: int32(d.spec.Nodes), GpusPerNode: int32(d.spec.GPUsPerNode),
		Rate: d.placed.Rate, Currency: d.rs.cfg.Currency, Budget: d.spec.Budget, MaxDurationS: d.spec.MaxDuration,
		QuoteID: d.quote.ID, Network: network, CreatedAt: d.now, StartDeadline: &deadline, DueAt: &due, StartNew: !d.covered,
	}
	d.view, err = plain(dbq.Cluster{
		ID: d.id, OrgID: d.row.OrgID, Name: d.row.Name, Spec: spec, State: string(lifecycle.Provisioning),
		Rate: d.row.Rate, Currency: d.row.Currency, Epoch: 1, Network: network, CreatedAt: d.now,
	})
	d.view.stopsAt(stop{deadline, client.StopStart})
	for _, n := range d.placed.Nodes {
		node := Node{
			Rank: n.Rank, ID: d.nodes[n.Rank], HostID: n.Host, HostName: n.HostName, State: lifecycle.NodePending,
			GPUs: []GPU{}, Address: NodeAddress(n.Rank), Required: true, Since: d.now,
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
	host.QueueLeaseClaims(b, tx, d.rs.bus, d.placed.ClaimSets(d.id, d.lease), d.lapsed)
	db.Write(b, (*dbq.Queries).InsertCluster, d.row)
	d.claims.QueueWrite(b, d.id)
	d.mounts.QueueWrite(b, d.id)
	d.shares.QueueWrite(b, d.id)
	for _, n := range d.placed.Nodes {
		db.Write(b, (*dbq.Queries).InsertNode, dbq.InsertNodeParams{
			ID:        d.nodes[n.Rank],
			ClusterID: d.id,
			Rank:      int32(n.Rank),
			HostID:    n.Host,
			LeaseID:   d.lease(n.Rank),
			Address:   NodeAddress(n.Rank),
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
	tx.AfterCommit(func() { d.rs.bus.Changed(bus.TopicCluster(d.id), bus.TopicOrg(d.principal.Org)) })
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
