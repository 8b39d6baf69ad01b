package market_test

import (
	"testing"

	"github.com/musterhq/muster/internal/fleet/market"
)

func TestSearchOffers_SuggestsWhatWasMeant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("ams-1", 2, "3.00")
	w.exec("UPDATE gpu SET model = 'NVIDIA GeForce RTX 4090' WHERE host_id = $1", w.host("attic", 1, "0.30"))
	w.exec("UPDATE offer SET gpu_model = 'NVIDIA GeForce RTX 4090' WHERE price = 300000")
	for q, want := range map[string]string{
		"h1oo":                   "h100",
		"H10O vram_gb>=80":       "h100 vram_gb >= 80",
		"rtx4090":                `"rtx 4090"`,
		"gpu_model=rtx-4090ti":   "",
		"gpu_model=H1OO":         "gpu_model = h100",
		"euwest":                 "eu-west",
		"region=eu-wset":         "region = eu-west",
		"vramgb":                 "vram_gb >= 80",
		"h100 gpus_free>=9":      "", // the words exist: only too few GPUs are free
		"teapot":                 "",
		"host_name=ams-2":        "",
		"h100":                   "", // it matches
		"h1oo rtx4090":           `h100 "rtx 4090"`,
		"vramgb h1oo gpu_arch=x": "vram_gb >= 80 h100 gpu_arch = x",
	} {
		p, err := w.m.SearchOffers(t.Context(), market.OfferSearch{Query: q})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if p.DidYouMean != nil {
			got = *p.DidYouMean
		}
		if got != want {
			t.Errorf("%s: %q, want %q", q, got, want)
		}
	}
}
