package hosts

import (
	"fmt"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/view"
)

// guideBars is how many bars the histogram of prices has.
const guideBars = 12

// viewGuide draws the prices of other operators, and says where the operator's own price stands; nil = none is set.
func viewGuide(g client.PriceGuide, own *money.Micro, currency string) PriceGuide {
	if g.Median == nil {
		return PriceGuide{Text: "No other operator offers this model now."}
	}
	out := PriceGuide{Text: fmt.Sprintf("%s of other operators on %s: a quarter cost %s or less, half %s or less, three "+
		"quarters %s or less (%s per GPU-hour).", view.Plural(g.GPUs, "GPU", "GPUs"), view.Plural(g.Hosts, "host", "hosts"),
		view.Price(*g.P25), view.Price(*g.Median), view.Price(*g.P75), currency)}
	low, high := g.Prices[0].Price, g.Prices[len(g.Prices)-1].Price
	if own != nil {
		out.Own = fmt.Sprintf("%d %% of them are cheaper than yours.", g.Cheaper(*own))
		low, high = min(low, *own), max(high, *own)
	}
	bar := func(p money.Micro) int {
		if high == low {
			return 0
		}
		return int((guideBars - 1) * (p - low) / (high - low))
	}
	var counts [guideBars]int
	for _, p := range g.Prices {
		counts[bar(p.Price)] += p.GPUs
	}
	most := 1
	for _, n := range counts {
		most = max(most, n)
	}
	for i, n := range counts {
		b := GuideBar{Height: 26 * n / most, Own: own != nil && bar(*own) == i}
		if n > 0 {
			b.Height = max(b.Height, 2)
		}
		out.Bars = append(out.Bars, b)
	}
	out.Low, out.High = view.Price(low), view.Price(high)
	return out
}
