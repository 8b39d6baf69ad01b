package market

import (
	"cmp"
	"context"
	"slices"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// ModelPrice is what a GPU model costs on the market now. It counts only offers with a free GPU.
type ModelPrice struct {
	Model    string
	VRAMGB   int64 // the smallest of the model's offers
	GPUsFree int
	Hosts    int
	Lowest   money.Micro // per GPU-hour
	Highest  money.Micro // per GPU-hour
}

// Prices returns the prices of all GPU models with a free GPU, cheapest first.
func (m *Market) Prices(ctx context.Context) ([]ModelPrice, error) {
	if err := m.view.recent(ctx, m.cfg.MaxAge); err != nil {
		return nil, err
	}
	m.view.mu.RLock()
	defer m.view.mu.RUnlock()
	return m.view.snap.prices(), nil
}

func (s *Snapshot) prices() []ModelPrice {
	byModel, hosts := map[string]*ModelPrice{}, map[string]map[id.Host]bool{}
	for _, c := range s.classes {
		if c.free == 0 {
			continue
		}
		for _, l := range c.lots {
			if s.locked(l.who.host) {
				continue
			}
			p := byModel[c.model]
			if p == nil {
				p = &ModelPrice{Model: c.model, VRAMGB: c.vramGB, Lowest: c.price, Highest: c.price}
				byModel[c.model], hosts[c.model] = p, map[id.Host]bool{}
			}
			p.GPUsFree += c.free
			p.VRAMGB = min(p.VRAMGB, c.vramGB)
			p.Lowest, p.Highest = min(p.Lowest, c.price), max(p.Highest, c.price)
			hosts[c.model][l.who.host] = true
		}
	}
	out := make([]ModelPrice, 0, len(byModel))
	for model, p := range byModel {
		p.Hosts = len(hosts[model])
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b ModelPrice) int {
		return cmp.Or(cmp.Compare(a.Lowest, b.Lowest), cmp.Compare(a.Model, b.Model))
	})
	return out
}
