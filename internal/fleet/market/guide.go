package market

import (
	"cmp"
	"context"
	"slices"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// PriceGuide returns how other operators price a GPU model now: the quartiles of the prices of all GPUs, rented or
// free, of hosts that could be rented from. Hosts of who's organisation do not count, so that no one follows their own
// price.
func (m *Market) PriceGuide(ctx context.Context, who account.Principal, model string) (client.PriceGuide, error) {
	if err := m.view.recent(ctx, m.cfg.MaxAge); err != nil {
		return client.PriceGuide{}, err
	}
	m.view.mu.RLock()
	defer m.view.mu.RUnlock()
	return m.view.snap.priceGuide(who.Org, model), nil
}

// priced is a number of GPUs at one price.
type priced struct {
	price money.Micro
	gpus  int
}

func (s *Snapshot) priceGuide(except id.Org, model string) client.PriceGuide {
	g := client.PriceGuide{GPUModel: model, Prices: []client.PricedGPUs{}}
	hosts := map[id.Host]bool{}
	var all []priced
	for _, c := range s.classes {
		if c.model != model {
			continue
		}
		for _, l := range c.lots {
			if l.who.org == except {
				continue
			}
			hosts[l.who.host] = true
			g.GPUs += c.total
			all = append(all, priced{c.price, c.total})
		}
	}
	g.Hosts = len(hosts)
	slices.SortFunc(all, func(a, b priced) int { return cmp.Compare(a.price, b.price) })
	for _, p := range all {
		last := len(g.Prices) - 1
		if last < 0 || g.Prices[last].Price != p.price {
			g.Prices = append(g.Prices, client.PricedGPUs{Price: p.price})
			last++
		}
		g.Prices[last].GPUs += p.gpus
	}
	g.P25, g.Median, g.P75 = quantile(all, g.GPUs, 25), quantile(all, g.GPUs, 50), quantile(all, g.GPUs, 75)
	return g
}

// quantile returns the lowest price that at least percent of the GPUs do not exceed; nil if there are none. The prices
// are sorted.
func quantile(prices []priced, gpus, percent int) *money.Micro {
	seen := 0
	for _, p := range prices {
		if seen += p.gpus; 100*seen >= percent*gpus {
			return &p.price
		}
	}
	return nil
}
