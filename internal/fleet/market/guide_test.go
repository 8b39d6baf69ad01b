package market_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// Quartiles count GPUs, rented ones too, and leave out the hosts of who asks.
func TestPriceGuide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 1, "1.00")
	w.host("b", 2, "2.00")
	w.host("c", 4, "3.00")
	w.host("c2", 1, "3.00")
	w.host("unpriced", 8, "")
	mine := w.host("mine", 8, "9.00")
	w.exec("UPDATE host SET org_id = $1 WHERE id = $2", w.tenant, mine)
	const model = "NVIDIA H100 80GB HBM3"
	price := func(n money.Micro) *money.Micro { return &n }
	got, err := w.m.PriceGuide(t.Context(), w.of(w.tenant), model)
	if err != nil {
		t.Fatal(err)
	}
	want := client.PriceGuide{
		GPUModel: model, Hosts: 4, GPUs: 8, P25: price(2_000_000), Median: price(3_000_000), P75: price(3_000_000),
		Prices: []client.PricedGPUs{{Price: 1_000_000, GPUs: 1}, {Price: 2_000_000, GPUs: 2}, {Price: 3_000_000, GPUs: 5}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for than, percent := range map[money.Micro]int{500_000: 0, 2_000_000: 12, 3_000_000: 37, 3_000_001: 100} {
		if n := got.Cheaper(than); n != percent {
			t.Errorf("cheaper than %s: %d %%, want %d", than, n, percent)
		}
	}
	none, err := w.m.PriceGuide(t.Context(), w.of(w.operator), "H100")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(client.PriceGuide{GPUModel: "H100", Prices: []client.PricedGPUs{}}, none); d != "" {
		t.Errorf("an unknown model (-want +got):\n%s", d)
	}
}
