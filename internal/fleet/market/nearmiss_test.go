package market_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// A search that matches nothing is answered with the smallest change of each term after which something matches.
func TestNearMisses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec("UPDATE host SET region = 'us-east' WHERE id = $1", w.host("ams-1", 8, "2.00"))
	w.exec("UPDATE host SET region = 'us-north' WHERE id = $1", w.host("ams-2", 4, "1.00"))
	for query, want := range map[string][]market.NearMiss{
		"region=eu-west": {{Query: "region = us-east", From: "region = eu-west", To: "region = us-east", GPUs: 8, Hosts: 1,
			Lowest: 2_000_000}},
		"gpus_free>=16": {{Query: "gpus_free >= 8", From: "gpus_free >= 16", To: "gpus_free >= 8", GPUs: 8, Hosts: 1,
			Lowest: 2_000_000}},
		"price_per_gpu_hour<=0.50": {{Query: "price_per_gpu_hour <= 1.000000", From: "price_per_gpu_hour <= 0.50",
			To: "price_per_gpu_hour <= 1.000000", GPUs: 4, Hosts: 1, Lowest: 1_000_000}},
		// Each of these terms alone can be met.
		"region=us-east price_per_gpu_hour<=1": {
			{Query: "region = us-east price_per_gpu_hour <= 2.000000", From: "price_per_gpu_hour <= 1",
				To: "price_per_gpu_hour <= 2.000000", GPUs: 8, Hosts: 1, Lowest: 2_000_000},
			{Query: "region = us-north price_per_gpu_hour <= 1", From: "region = us-east", To: "region = us-north", GPUs: 4,
				Hosts: 1, Lowest: 1_000_000}},
		"region=eu-west gpus_free>=16": nil, // no single change suffices
		"gpu_model=H200 region=us-north": {{Query: `gpu_model = "NVIDIA H100 80GB HBM3" region = us-north`,
			From: "gpu_model = H200", To: `gpu_model = "NVIDIA H100 80GB HBM3"`, GPUs: 4, Hosts: 1, Lowest: 1_000_000}},
		"nvlink=false": {{From: "nvlink = false", GPUs: 12, Hosts: 2, Lowest: 1_000_000}},
	} {
		got, err := w.m.NearMisses(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", query, got, want)
		}
	}
}

// If a gang that requires a bandwidth does not fit, the explanation lists the hosts that would do but whose network was
// never measured.
func TestNoCapacity_NamesUnmeasuredNetworks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	known, unknown := w.host("ams-1", 8, "2.00"), w.host("ams-2", 8, "2.00")
	w.exec("UPDATE host SET multi_node = true")
	w.exec("UPDATE host_status SET net_up_mbps = 200000, net_down_mbps = 200000 WHERE host_id = $1", known)
	spec := market.DefaultSpec()
	spec.Nodes, spec.GPUsPerNode, spec.Image, spec.Network.MinGbps = 3, 8, "x/y:1", 100
	_, _, err := w.m.Quote(t.Context(), w.of(w.renter(1000*money.Unit)), spec, idem.Request{})
	f := fault.From(err)
	if f == nil || f.Kind != fault.NoCapacity {
		t.Fatalf("%v", err)
	}
	names, _ := f.Extra["unmeasured"].([]string)
	if strings.Join(names, " ") != "ams-2" {
		t.Errorf("unmeasured: %v", names)
	}
	if got := w.m.Unmeasured([]id.Host{known, unknown}); strings.Join(got, " ") != "ams-2" {
		t.Errorf("unmeasured: %v", got)
	}
	spec.Network.MinGbps = 0
	_, _, err = w.m.Quote(t.Context(), w.of(w.renter(1000*money.Unit)), spec, idem.Request{})
	if f := fault.From(err); f == nil || f.Extra["unmeasured"] != nil {
		t.Errorf("without a bandwidth: %v", err)
	}
}
