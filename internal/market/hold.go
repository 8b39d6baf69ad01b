package market

import (
	"context"
	"errors"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
)

// ErrStale says that a plan was made on a view that has changed since. Planning plans again.
var ErrStale = errors.New("market: the plan is stale")

// Hold claims the GPUs of a plan for leases, inside the renter's transaction: it locks the hosts (by id), ends expired
// quote claims on them, checks price, terms and sums again, and inserts the claims by GPU id. Other GPUs of the same
// offer take the place of those that were taken meanwhile, so the result may differ from the plan in GPUs, never in
// hosts or price. ErrStale: it no longer fits; the transaction must roll back.
func (m *Market) Hold(ctx context.Context, tx *db.Tx, plan Placement, leases LeaseOf) (Placement, error) {
	return Placement{}, fault.New(fault.Unavailable, "rents are not served yet")
}

// Planner makes plans on this replica's view of the fleet. See Planning.
type Planner struct {
	m *Market
}

// Place plans the cheapest feasible gang for spec, from memory; it asks the database nothing. GPUs that other attempts
// on this replica are about to claim are left alone. Fault: NoCapacity with explain and relaxations.
func (p *Planner) Place(ctx context.Context, spec Spec) (Placement, error) {
	return Placement{}, fault.New(fault.Unavailable, "plans are not served yet")
}

// Planning runs attempt, which plans with p and claims the plan in a transaction of its own (Planner.Place may be
// called inside it). When the attempt fails because the plan was stale, or because nothing fitted in memory, the view
// is read afresh and the attempt is run again: up to three more times, and never a NoCapacity that an authoritative
// read has not confirmed.
func (m *Market) Planning(ctx context.Context, attempt func(ctx context.Context, p *Planner) error) error {
	return fault.New(fault.Unavailable, "plans are not served yet")
}
