package cluster

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// ForecastReclaim returns what it would cost if one host of who's organisation were reclaimed at once, now. Fault:
// NotFound.
func (c *Clusters) ForecastReclaim(ctx context.Context, who account.Principal,
	of id.Host) (client.ReclaimForecast, error) {
	h, err := host.Read(ctx, c.db.Q, of)
	if err != nil {
		return client.ReclaimForecast{}, err
	}
	if h.Org != who.Org {
		return client.ReclaimForecast{}, host.NotFound()
	}
	f, err := metering.ForecastLoss(ctx, c.db.Q, of)
	if err != nil {
		return client.ReclaimForecast{}, err
	}
	if f.Currency == "" { // nothing runs on it
		f.Currency = c.cfg.Currency
	}
	return client.ReclaimForecast{
		Leases:   f.Leases,
		Credit:   f.Credit,
		HostPart: f.HostPart,
		Currency: f.Currency,
		Free:     int64(metering.CreditSpan.Seconds()),
	}, nil
}
