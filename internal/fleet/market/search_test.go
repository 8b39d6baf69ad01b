package market_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func names(p client.OfferPage) []string {
	var out []string
	for _, o := range p.Items {
		out = append(out, o.HostName)
	}
	return out
}

func TestSearchOffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 8, "3.00")
	w.host("b", 2, "1.00")
	w.host("c", 4, "2.00")
	w.host("unpriced", 4, "")
	w.exec("UPDATE gpu SET health = 'suspect' WHERE host_id = $1 AND idx = 0", w.host("ill", 1, "1.00"))
	search := func(q, sort string) client.OfferPage {
		t.Helper()
		p, err := w.m.SearchOffers(t.Context(), market.OfferSearch{Query: q, Sort: sort})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct{ query, sort, want string }{
		{"", "", "b c a"},
		{"gpu_model=H100 vram_gb>=80", "-gpus_free", "a c b"},
		{"gpus_free>=4", "price_per_gpu_hour", "c a"},
		{"host_name in [A,c]", "-host_name", "c a"},
		{"gpu_model=A100", "", ""},
		{"h100 eu-west gpus_free>=4", "", "c a"},
		{"h100 us-east", "", ""},
		{"", "reliability", ""}, // not known for any: by id, which is by creation
	} {
		want := strings.Fields(c.want)
		if c.sort == "reliability" {
			want = []string{"a", "b", "c"}
		}
		if got := names(search(c.query, c.sort)); !slices.Equal(got, want) {
			t.Errorf("%q by %q: %v, want %v", c.query, c.sort, got, want)
		}
	}
	p := search("vram_gb>=80 gpus_free>=4 region=eu-west", "")
	if p.Total != 2 || p.GPUsFree != 12 || p.Hosts != 2 || len(p.Explain) != 3 || p.Explain[1].Excluded != 1 ||
		p.Explain[2].Left != 2 {
		t.Errorf("%+v", p)
	}
	if len(p.Models) != 1 || p.Models[0].GPUsFree != 14 || len(p.Regions) != 1 || p.Regions[0] != (client.Facet{
		Value:    "eu-west",
		GPUsFree: 14,
	}) {
		t.Errorf("all that is free: %+v in %+v", p.Models, p.Regions)
	}
	b, err := json.Marshal(p.Items[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"gpus_total":4`, `"vram_gb":80`, `"price_per_gpu_hour":"2.000000"`, `"fabric":null`,
		`"max_duration":null`, `"nvlink":true`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s lacks %s", b, want)
		}
	}
}

func TestSearchPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 7 {
		w.host(fmt.Sprintf("h%d", i), 1+i%2, fmt.Sprintf("%d.00", 1+i/3))
	}
	for _, sort := range []string{"", "-price_per_gpu_hour", "gpus_total", "region", "-busbw_gbps", "max_duration",
		"cuda_max", "host_id"} {
		var got []id.Offer
		s := market.OfferSearch{Sort: sort, Limit: 2}
		for {
			p, err := w.m.SearchOffers(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range p.Items {
				got = append(got, o.ID)
			}
			if p.Next == nil {
				break
			}
			s.After = *p.Next
		}
		all, err := w.m.SearchOffers(t.Context(), market.OfferSearch{Sort: sort})
		if err != nil {
			t.Fatal(err)
		}
		var want []id.Offer
		for _, o := range all.Items {
			want = append(want, o.ID)
		}
		if !slices.Equal(got, want) || len(want) != 7 {
			t.Errorf("by %q: pages show %d offers in another order than all %d", sort, len(got), len(want))
		}
	}
	for _, s := range []market.OfferSearch{{Query: "gpu=1"}, {Sort: "colour"}, {After: "x"}, {Limit: 201}, {Limit: -1}} {
		if _, err := w.m.SearchOffers(t.Context(), s); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	p, err := w.m.SearchOffers(t.Context(), market.OfferSearch{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.m.SearchOffers(t.Context(), market.OfferSearch{
		Limit: 1,
		Sort:  "region",
		After: *p.Next,
	}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a cursor of another order: %v", err)
	}
}

func TestTermsAndTheirHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.host("a", 2, "")
	if n := w.free(w.m); n != 0 {
		t.Errorf("%d GPUs for sale without a price", n)
	}
	set := func(org id.Org, model string, terms market.Terms) (out []client.OwnOffer, err error) {
		err = w.m.ChangeHost(t.Context(), w.of(org), h, market.HostChange{Terms: terms, GPUModel: model})
		if err != nil {
			return nil, err
		}
		all, err := w.m.OffersOf(t.Context(), h)
		return all[h], err
	}
	price, two, day := money.Micro(2_500_000), 2, int64(86400)
	o, err := set(w.operator, "", market.Terms{Price: &price, MinGPUs: &two, MaxDuration: &day})
	if err != nil || len(o) != 1 || *o[0].Price != price || o[0].MinGPUs != 2 || *o[0].MaxDuration != day ||
		o[0].GPUs != 2 {
		t.Fatalf("%+v %v", o, err)
	}
	var none int64
	if o, err = set(w.operator, "NVIDIA H100 80GB HBM3", market.Terms{MaxDuration: &none}); err != nil ||
		*o[0].Price != price || o[0].MaxDuration != nil {
		t.Fatalf("%+v %v", o, err)
	}
	if o, err = set(w.operator, "", market.Terms{Unlist: true}); err != nil || o[0].Price != nil {
		t.Fatalf("%+v %v", o, err)
	}
	free, zero, long := money.Micro(0), 0, int64(59)
	for _, bad := range []market.Terms{{Price: &free}, {MinGPUs: &zero}, {MaxDuration: &long}, {
		Price:  &price,
		Unlist: true,
	}} {
		if _, err := set(w.operator, "", bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := set(w.org(), "", market.Terms{Price: &price}); !fault.Is(err, fault.NotFound) {
		t.Errorf("another org: %v", err)
	}
	if _, err := set(w.operator, "NVIDIA A100", market.Terms{Price: &price}); !fault.Is(err, fault.NotFound) {
		t.Errorf("another model: %v", err)
	}
	var history int
	if err := w.d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM offer_price").Scan(&history); err != nil ||
		history != 2 {
		t.Errorf("%d changes of price noted, want 2: %v", history, err)
	}
	changes, err := w.m.PriceHistory(t.Context(), w.of(w.operator), h)
	if err != nil || len(changes) != 2 || changes[0].At.Before(changes[1].At) {
		t.Fatalf("%+v %v", changes, err)
	}
	if _, err := w.m.PriceHistory(t.Context(), w.of(w.org()), h); !fault.Is(err, fault.NotFound) {
		t.Errorf("another organisation's prices: %v", err)
	}
	if c := changes[0]; c.Price != nil || c.Before == nil || *c.Before != price || c.GPUModel != "NVIDIA H100 80GB HBM3" {
		t.Errorf("the newest: %+v", c)
	}
	if c := changes[1]; c.Before != nil || c.Price == nil || *c.Price != price {
		t.Errorf("the first: %+v", c)
	}
}
