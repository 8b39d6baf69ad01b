// Package market knows what can be rented, finds the cheapest cluster that fits, and holds its GPUs.
//
// What always holds:
//   - A GPU is in at most one live claim, and a gang is claimed whole or not at all.
//   - What is rented or quoted was checked under the locks of its hosts; the view in memory only proposes.
//   - Price and terms of a placement are those of its offers at the moment of the claim, and never change after it.
//   - NoCapacity is answered only when a read of the database, begun after the request, confirms it.
//   - Place is pure: the same snapshot and ask give the same placement, the cheapest there is.
package market

import (
	"math/rand/v2"
	"time"

	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/seal"
)

// Config of a Market.
type Config struct {
	Currency       string        // of all prices and wallets, "USD"
	HostSharePPM   int           // the usual part of a charge that is the operator's, in millionths; 0 = 850,000
	AllowSimulated bool          // sell hosts with simulated GPUs: sandbox only
	QuoteTTL       time.Duration // 60 to 120 s; 0 = 90 s
	MaxAge         time.Duration // of the view in memory that searches and plans use, at most four times that; 0 = 250 ms
	// RelistLock is how long a host is not offered after a run on it ended by its own fault: see fairness.RelistLock. 0 =
	// not at all.
	RelistLock time.Duration
	Bus        *bus.Bus         // tells hosts and pages of changes; nil: they find out by themselves
	Now        func() time.Time // this replica's clock, for the view's age only; nil = time.Now
}

// Market serves searches, quotes and claims. Safe for concurrent use.
type Market struct {
	db   *db.DB
	box  *seal.Box
	cfg  Config
	view *view

	images  imageHosts
	popular popular
}

// New starts nothing. The box seals the secrets in quoted specs.
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
	return &Market{db: d, box: box, cfg: cfg, view: newView(d, cfg, rand.Int()),
		images: imageHosts{known: map[string]holders{}}}, nil
}
