package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
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

// Rent rents a cluster. With an idempotency key the first answer is given again. Faults: Invalid, NoCapacity with
// explain, InsufficientFunds when less than 60 s can be paid, QuotaExceeded, Conflict and NotFound for the quote.
func (c *Clusters) Rent(ctx context.Context, p account.Principal, r RentRequest, key idem.Request) (Cluster, error) {
	if r.Quote.IsZero() {
		if err := r.Spec.Validate(); err != nil {
			return Cluster{}, err
		}
	}
	var out Cluster
	err := c.market.Planning(ctx, r.Spec.Image, func(ctx context.Context, plan *market.Planner) error {
		return c.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			n := &rental{
				c:         c,
				principal: p,
				request:   r,
				id:        id.New[id.Cluster](),
				leases:    map[int]id.Lease{},
				nodes:     map[int]id.Node{},
			}
			earlier, err := n.begin(ctx, tx, plan, key)
			switch {
			case earlier != nil:
				plan.Forget()
				return json.Unmarshal(earlier.Body, &out)
			case err != nil:
				return err
			}
			if err := n.take(ctx, tx); err != nil {
				return err
			}
			if out, err = n.view(); err != nil {
				return err
			}
			return tx.Last(ctx, func(ctx context.Context, tx *db.Tx) error {
				if err := n.write(ctx, tx); err != nil {
					return err
				}
				_, err := key.Finish(ctx, tx, http.StatusAccepted, out)
				return err
			})
		})
	})
	if errors.Is(err, market.ErrStale) { // planned afresh several times, and each time somebody was faster
		return Cluster{}, fault.Wrap(err, fault.NoCapacity, "The GPUs that fit are being rented by others at this moment: "+
			"try again.")
	}
	return out, err
}

// newCluster is the row of the cluster.
func (r *rental) newCluster() (dbq.InsertClusterParams, error) {
	c, cl, spec := r.c, r.id, r.spec
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
	deadline, due := r.now.Add(c.cfg.StartTimeout), r.now.Add(lookStarting)
	return dbq.InsertClusterParams{
		ID:            cl,
		OrgID:         r.principal.Org,
		CreatedBy:     r.principal.User,
		Name:          name,
		Project:       spec.ProjectName(),
		Labels:        labels,
		Spec:          specJSON,
		Secrets:       c.cfg.Box.Seal(sealed, belongs(cl)),
		ImageRef:      spec.Image,
		NodeCount:     int32(spec.Nodes),
		GpusPerNode:   int32(spec.GPUsPerNode),
		Rate:          r.placed.Rate,
		Currency:      c.cfg.Currency,
		Budget:        spec.Budget,
		MaxDurationS:  spec.MaxDuration,
		QuoteID:       r.request.Quote,
		Network:       network,
		CreatedAt:     r.now,
		StartDeadline: &deadline,
		DueAt:         &due,
	}, nil
}

// belongs binds a cluster's sealed secrets to it.
func belongs(cl id.Cluster) string { return "cluster:" + cl.UUID().String() }
