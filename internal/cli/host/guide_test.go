package host

import (
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

func TestGuideText(t *testing.T) {
	t.Parallel()
	price := func(n money.Micro) *money.Micro { return &n }
	g := client.PriceGuide{
		GPUModel: "L40S", GPUs: 4, P25: price(1_000_000), Median: price(1_500_000), P75: price(2_000_000),
		Prices: []client.PricedGPUs{{Price: 1_000_000, GPUs: 1}, {Price: 2_000_000, GPUs: 3}},
	}
	for _, c := range []struct {
		guide client.PriceGuide
		price *money.Micro
		want  string
	}{
		{client.PriceGuide{GPUModel: "L40S"}, price(1), "L40S: no other operator offers it now."},
		{g, nil, "L40S: half of 4 GPUs of other operators cost 1.00 to 2.00 per GPU-hour, the median is 1.50."},
		{g, price(2_000_000), "L40S: half of 4 GPUs of other operators cost 1.00 to 2.00 per GPU-hour, the median is 1.50. " +
			"Your price is 2.00; 25 % of them are cheaper."},
	} {
		if got := guideText(c.guide, c.price); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
