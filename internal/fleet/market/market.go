// Package market knows which GPUs can be rented, finds the cheapest placement for a request, and claims its GPUs.
//
// Invariants:
//   - A GPU is in at most one live claim, and a gang is claimed as a whole or not at all.
//   - Every rented or quoted placement was checked while its hosts were locked; the view in memory only proposes
//     placements.
//   - Price and terms of a placement are those of its offers at the time of the claim, and never change afterwards.
//   - NoCapacity is returned only if a read of the database that began after the request confirms it.
//   - Place is pure: the same snapshot and request give the same placement, the cheapest possible.
package market

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/seal"
)

// Config configures a Market.
type Config struct {
	Currency       string        // currency of all prices and wallets, such as "USD"
	HostSharePPM   int           // operators' default part of charges, in millionths; 0 = 850,000
	AllowSimulated bool          // sell hosts with simulated GPUs: sandbox only
	QuoteTTL       time.Duration // 60 to 120 s; 0 = 90 s
	MaxAge         time.Duration // age of the in-memory view for searches and plans, at most four times that; 0 = 250 ms
	// RelistLock is how long a host is not offered after a run on it ended by the host's fault; see fairness.RelistLock. 0
	// = not at all.
	RelistLock time.Duration
	Starts     fairness.StartRules // limit for how long quotes hold GPUs that are not paid for; see fairness.StartRules
	Bus        *bus.Bus            // notifies hosts and pages of changes; nil = they poll
	Now        func() time.Time    // this replica's clock, only for the view's age; nil = time.Now
}

// Market implements searches, quotes and claims. It is safe for concurrent use.
type Market struct {
	db   *db.DB
	box  *seal.Box
	cfg  Config
	view *view

	images  imageHosts
	popular popular
	sizes   sizes
	same    *db.Gather[host.Sent, bool]            // finds out which inventories are stored already
	changed *db.Gather[host.Listed, host.Recorded] // stores the others

	estimates quota
}

// How many inventories are stored together, and how long that may take. A set keeps its hosts locked while it is
// stored.
const (
	storeAtOnce = 64
	storeWithin = 10 * time.Second
)

// New returns a Market. It starts no goroutines. box encrypts the secrets in quoted specs.
func New(d *db.DB, box *seal.Box, cfg Config) (*Market, error) {
	if cfg.HostSharePPM == 0 {
		cfg.HostSharePPM = 850_000
	}
	if cfg.HostSharePPM < 0 || cfg.HostSharePPM > 1_000_000 {
		return nil, fault.New(fault.Invalid, "the operators' usual share has to be 1 to 1000000 millionths, not %d",
			cfg.HostSharePPM)
	}
	if cfg.QuoteTTL == 0 {
		cfg.QuoteTTL = 90 * time.Second
	}
	if cfg.QuoteTTL < time.Minute || cfg.QuoteTTL > 2*time.Minute {
		return nil, fault.New(fault.Invalid, "quotes must hold for 60 to 120 seconds, not %s", cfg.QuoteTTL)
	}
	if cfg.MaxAge == 0 {
		cfg.MaxAge = 250 * time.Millisecond
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	m := &Market{db: d, box: box, cfg: cfg, images: imageHosts{known: map[string]holders{}}}
	m.view = newView(d, cfg, rand.Int(), m.loadHosts)
	m.same = db.NewGather(2, 500, storeWithin, func(ctx context.Context, all []host.Sent) ([]bool, error) {
		return host.SameInventories(ctx, d, all)
	})
	m.changed = db.NewGather(2, storeAtOnce, storeWithin, m.storeInventories)
	return m, nil
}
