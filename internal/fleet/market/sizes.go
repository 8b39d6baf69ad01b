package market

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// sizesFor is the lifetime of the counted sizes: the market grows slowly.
const sizesFor = time.Minute

// sizes caches how many GPUs of each model the market has.
type sizes struct {
	mu      sync.Mutex
	byModel map[string]int64
	at      time.Time
}

// ModelSizes returns how many GPUs of each model the market has, free or rented, as counted at most a minute ago. A
// host reports its own GPUs, so only those of operators that have earned something count. The caller must not change
// the map.
func (m *Market) ModelSizes(ctx context.Context) (map[string]int64, error) {
	m.sizes.mu.Lock()
	defer m.sizes.mu.Unlock()
	if now := m.cfg.Now(); m.sizes.byModel == nil || now.Sub(m.sizes.at) > sizesFor {
		rows, err := m.db.Q.MarketModels(ctx, m.cfg.Currency)
		if err != nil {
			return nil, fmt.Errorf("count the GPUs of the market: %w", err)
		}
		byModel := make(map[string]int64, len(rows))
		for _, r := range rows {
			byModel[r.Model] = r.Gpus
		}
		m.sizes.byModel, m.sizes.at = byModel, now
	}
	return m.sizes.byModel, nil
}
