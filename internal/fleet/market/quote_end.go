package market

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// ReturnQuote gives a quote back. Returning one that is no longer held changes nothing and is no error. Fault:
// NotFound.
func (m *Market) ReturnQuote(ctx context.Context, org id.Org, q id.Quote) (Quote, error) {
	var out Quote
	err := m.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		if out, err = m.lockQuote(ctx, tx, org, q); err != nil || out.State != QuoteHeld {
			return err
		}
		out.State = QuoteReturned
		return m.endQuote(ctx, tx, out, host.EndReturned)
	})
	return out, err
}

// TakeQuote turns the claims of org's quote into claims of leases, inside the renter's transaction: it locks the quote,
// then its hosts. Faults: NotFound; Conflict when it expired, was returned or rented, or a host of it went away.
func (m *Market) TakeQuote(ctx context.Context, tx *db.Tx, org id.Org, quote id.Quote, cluster id.Cluster,
	leases LeaseOf) (Quote, error) {
	q, err := m.lockQuote(ctx, tx, org, quote)
	if err != nil {
		return Quote{}, err
	}
	hosts, err := host.Lock(ctx, tx, q.Placement.HostIDs())
	if err != nil {
		return Quote{}, err
	}
	now, err := tx.Now(ctx) // the locks may have been waited for
	if err != nil {
		return Quote{}, err
	}
	switch {
	case q.State == QuoteRented:
		return Quote{}, fault.New(fault.Conflict, "the quote is rented already, as cluster %s", q.Cluster)
	case q.State == QuoteReturned:
		return Quote{}, fault.New(fault.Conflict, "the quote was given back: ask for a new one")
	case q.State == QuoteExpired, !now.Before(q.ExpiresAt):
		return Quote{}, fault.New(fault.Conflict, "the quote expired at %s: ask for a new one",
			q.ExpiresAt.Format("15:04:05 UTC"))
	}
	for i := range hosts {
		if hosts[i].Org == org {
			return Quote{}, errOwnHost
		}
		if why := hosts[i].Unsellable(now); why != "" {
			return Quote{}, fault.New(fault.Conflict, "a host of the quote is no longer available (%s): ask for a new one", why)
		}
	}
	q.State, q.Cluster = QuoteRented, cluster
	if err := m.endQuote(ctx, tx, q, host.EndRented); err != nil {
		return Quote{}, err
	}
	err = claim(ctx, tx, host.ForLease, q.Placement, func(rank int) uuid.UUID { return leases(rank).UUID() }, nil)
	if errors.Is(err, ErrStale) { // nobody can have rented it: it went bad
		return Quote{}, fault.Wrap(err, fault.Conflict, "a GPU of the quote is no longer available: ask for a new one")
	}
	if err != nil {
		return Quote{}, fmt.Errorf("market: take %s: %w", quote, err)
	}
	return q, nil
}

// endQuote writes the end of a locked quote and frees its GPUs.
func (m *Market) endQuote(ctx context.Context, tx *db.Tx, q Quote, reason string) error {
	if err := tx.Q.EndQuote(ctx, string(q.State), q.Cluster, q.ID); err != nil {
		return fmt.Errorf("market: end %s: %w", q.ID, err)
	}
	return host.EndClaims(ctx, tx, q.ID.UUID(), reason)
}

// sweepSize is how many quotes one sweep ends at most.
const sweepSize = 500

// ExpireQuotes marks due quotes as expired, forgets their secrets and ends their claims; a worker calls it every few
// seconds. Nothing waits for it: an expired claim gives way by itself.
func (m *Market) ExpireQuotes(ctx context.Context) (expired int, err error) {
	if _, err := host.ExpireClaims(ctx, m.db, sweepSize*MaxGPUsPerNode); err != nil {
		return 0, err
	}
	ids, err := m.db.Q.ExpireQuotes(ctx, sweepSize)
	if err != nil {
		return 0, fmt.Errorf("market: expire quotes: %w", err)
	}
	return len(ids), nil
}

// Prune forgets changes of the fleet that every replica has read long ago; a worker calls it every few minutes.
func (m *Market) Prune(ctx context.Context) (pruned int64, err error) {
	n, err := m.db.Q.PruneFleetChanges(ctx, int64(keptFor.Seconds()))
	if err != nil {
		return 0, fmt.Errorf("market: prune changes: %w", err)
	}
	return n, nil
}
