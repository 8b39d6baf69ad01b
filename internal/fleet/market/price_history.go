package market

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// maxPriceChanges is how many changes of a host's prices are told, the newest.
const maxPriceChanges = 100

// PriceChange is a moment at which an operator changed a price. Leases that ran then kept theirs.
type PriceChange struct {
	At       time.Time    `json:"at"`
	GPUModel string       `json:"gpu_model"`
	Price    *money.Micro `json:"price_per_gpu_hour"` // from then on; nil: not listed
	Before   *money.Micro `json:"before"`             // nil: not listed
}

// PriceHistory is the last changes of the host's prices, newest first. The caller has checked that it may be seen.
func (m *Market) PriceHistory(ctx context.Context, of id.Host) ([]PriceChange, error) {
	rows, err := m.db.Q.PriceChangesOfHost(ctx, of, maxPriceChanges)
	if err != nil {
		return nil, fmt.Errorf("market: prices of %s: %w", of, err)
	}
	out := make([]PriceChange, len(rows))
	for i, r := range rows {
		out[i] = PriceChange{At: r.At.UTC(), GPUModel: r.GPUModel, Price: r.Price}
		if r.Before > 0 {
			before := money.Micro(r.Before)
			out[i].Before = &before
		}
	}
	return out, nil
}
