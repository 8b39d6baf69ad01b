// Package markettest gives tests a market for the hosts of package fleettest.
package markettest

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// New returns the market of one more replica, in the world's currency and with simulated hosts.
func New(w *fleettest.World, cfg market.Config) *market.Market {
	w.T.Helper()
	cfg.Currency, cfg.AllowSimulated = fleettest.Currency, true
	m, err := market.New(w.DB, w.Box(), cfg)
	w.Must(err)
	return m
}

// Price creates the offers of a host's GPUs, or changes their price per GPU-hour.
func Price(w *fleettest.World, m *market.Market, operator account.Principal, h id.Host, price money.Micro) {
	w.T.Helper()
	w.Tx(func(ctx context.Context, tx *db.Tx) error { return m.SyncOffers(ctx, tx, h) })
	w.Must(m.ChangeHost(w.T.Context(), operator, h, market.HostChange{Terms: market.Terms{Price: &price}}))
}
