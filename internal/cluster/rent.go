package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/market"
)

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
			done, err := c.rent(ctx, tx, p, r, plan)
			if err != nil {
				return err
			}
			if out, err = done.view(); err != nil {
				return err
			}
			return tx.Together(ctx, func(ctx context.Context, tx *db.Tx) error {
				if err := done.note(ctx, tx, p); err != nil {
					return err
				}
				_, err := key.Finish(ctx, tx, http.StatusAccepted, out)
				return err
			})
		})
	})
	if errors.Is(err, market.ErrStale) { // planned afresh several times, and each time somebody was faster
		return Cluster{}, fault.Wrap(err, fault.NoCapacity, "The GPUs that fit are being rented by others at this moment: try again.")
	}
	return out, err
}

// rent does it inside the transaction, in the order of locks: the cluster's row is new, then hosts, claims, leases,
// money.
func (c *Clusters) rent(ctx context.Context, tx *db.Tx, p account.Principal, r RentRequest, plan *market.Planner) (*rental, error) {
	cl := id.New[id.Cluster]()
	n := &rental{leases: map[int]id.Lease{}, nodes: map[int]id.Node{}}
	var err error
	if n.spec, n.placed, err = c.take(ctx, tx, p, r, plan, cl, n.lease); err != nil {
		return nil, err
	}
	if _, err := account.SSHKeysByID(ctx, tx.Q, p.Org, n.spec.SSHKeyIDs); err != nil {
		return nil, err
	}
	if n.now, err = tx.Now(ctx); err != nil {
		return nil, err
	}
	if n.row, err = c.newCluster(cl, p, r.Quote, n.spec, n.placed, n.now); err != nil {
		return nil, err
	}
	if err := host.RaiseRevision(ctx, tx, c.bus, n.placed.HostIDs()...); err != nil {
		return nil, fmt.Errorf("raise revisions: %w", err)
	}
	if err := tx.Together(ctx, n.insert); err != nil {
		return nil, fmt.Errorf("write cluster %s: %w", cl, err)
	}
	if err := n.pay(ctx, tx); err != nil {
		return nil, err
	}
	tx.AfterCommit(func() { c.bus.Changed(bus.TopicCluster(cl), bus.TopicOrg(p.Org)) })
	return n, nil
}

// take claims the GPUs: those of a quote, or those of a fresh plan.
func (c *Clusters) take(ctx context.Context, tx *db.Tx, p account.Principal, r RentRequest, plan *market.Planner, cl id.Cluster,
	leaseOf market.LeaseOf) (market.Spec, market.Placement, error) {
	if r.Quote.IsZero() {
		want, err := plan.Place(ctx, p.Org, r.Spec)
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

// belongs binds a cluster's sealed secrets to it.
func belongs(cl id.Cluster) string { return "cluster:" + cl.UUID().String() }
