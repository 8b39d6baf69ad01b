package market

import (
	"math"
	"testing"

	"github.com/musterhq/muster/internal/fleet/market/query"
)

func testFacts() *facts {
	return &facts{
		model:         "NVIDIA H100 80GB HBM3",
		modelWords:    &wordList{query.Words("NVIDIA H100 80GB HBM3")},
		arch:          "Hopper",
		computeCap:    "9.0",
		cudaMax:       "12.4",
		driver:        "550.54.15",
		vramGB:        80,
		nvlink:        true,
		nvlinkGbps:    900,
		powerLimitW:   250,
		pcieGen:       5,
		region:        "eu-west",
		fabricName:    "ams-r4",
		busbwGbps:     maybe{341.8, true},
		price:         2_340_000,
		minGPUs:       1,
		free:          8,
		total:         8,
		cpuCores:      192,
		ramMB:         2 << 20,
		diskFreeGB:    4000,
		multiNode:     true,
		maxDuration:   7200,
		diskLimited:   true,
		scratchFreeGB: 900,
		runtimes:      "runc runsc",
	}
}

func TestQueryMatches(t *testing.T) {
	t.Parallel()
	who := &identity{name: "ams-r4-02"}
	for _, c := range []struct {
		query string
		want  bool
	}{
		{"", true},
		{"  ", true},
		{"gpu_model=H100", true},
		{"gpu_model=h100 vram_gb>=80", true},
		{`gpu_model="H100 80GB"`, true},
		{`gpu_model='nvidia h100'`, true},
		{`gpu_model="80GB H100"`, false},
		{"gpu_model=H10", false},
		{"gpu_model=100", false},
		{"gpu_model!=A100", true},
		{"gpu_model in [A100,H100]", true},
		{`gpu_model in [ "RTX 4090" , H200 ]`, false},
		{"gpu_model notin [A100, H200]", true},
		{"gpu_model notin [A100,H100]", false},
		{"region in [eu-west,eu-north] vram_gb>79.5", true},
		{"region=EU-West", true},
		{"region=eu", false},
		{"cuda_max>=12.10", false},
		{"cuda_max>=12", true},
		{"cuda_max=12.4.0", true},
		{"driver<551", true},
		{"compute_cap>=8.9 compute_cap<10", true},
		{"nvlink=true nvlink_gbps>=600", true},
		{"nvlink!=yes", false},
		{"power_limit_w>=250 power_limit_w<300", true},
		{"power_limit_w>=300", false},
		{"power_default_w>=1", false}, // not known
		{"power_default_w<1", false},
		{"price_per_gpu_hour<=2.34", true},
		{"price_per_gpu_hour<2.34", false},
		{"price_per_gpu_hour<2.340001", true},
		{"busbw_gbps>=200", true},
		{"reliability>=0", false}, // not known: satisfies nothing
		{"reliability!=1", false},
		{"reliability notin [1]", false},
		{"max_duration>=7200", true},
		{"max_duration>7200", false},
		{"ram_gb=2048 gpus_free>=8 disk_gb>100", true},
		{"disk_limited=true runtime=runsc", true},
		{"scratch_gb>=900 scratch_gb<901", true},
		{"scratch_gb>900", false},
		{"disk_limited=false", false},
		{"runtime=RUNC", true},
		{"runtime=run", false},
		{"runtime!=runsc", false},
		{"runtime in [kata,runsc]", true},
		{"runtime notin [kata,runsc]", false},
		{"runtime notin [kata]", true},
		{"host_name=AMS-r4-02", true},
		{"host_name!=ams-r4-02", false},
		{"fabric=ams-r4 fabric!=osl-a", true},
	} {
		q, err := query.Parse(c.query)
		if err != nil {
			t.Errorf("%q: %v", c.query, err)
			continue
		}
		got := true
		for i := range q.Terms() {
			got = got && matches(&q.Terms()[i], testFacts(), who)
		}
		if got != c.want {
			t.Errorf("%q = %v, want %v", c.query, got, c.want)
		}
	}
}

func TestOpenEndedOfferTakesAnyDuration(t *testing.T) {
	t.Parallel()
	f := testFacts()
	f.maxDuration = 0
	q, err := query.Parse("max_duration>=999999999")
	if err != nil || !q.Terms()[0].Matches(f) || !math.IsInf(f.longest(), 1) {
		t.Errorf("%v", err)
	}
}

// matches holds a term against what it is about: the facts of an offer, or its names.
func matches(t *query.Term, f *facts, who *identity) bool {
	if t.Field.Kind == query.Identity {
		return t.Matches(who)
	}
	return t.Matches(f)
}
