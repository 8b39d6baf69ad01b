package api

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

func TestScrapeOfACluster(t *testing.T) {
	t.Parallel()
	cl, err := id.Parse[id.Cluster]("cl_01jd9w6n3q0000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	was := time.Unix(1, 0)
	s := scrape{
		c: cluster.Cluster{
			ID:              cl,
			Name:            "train",
			State:           lifecycle.Running,
			Currency:        "USD",
			PricePerHour:    2_500_000,
			CostSoFar:       1_250_000_000,
			BillableSeconds: cluster.Seconds(90 * time.Second),
			Nodes:           []cluster.Node{{Rank: 0, State: lifecycle.NodeReady}, {Rank: 1, State: lifecycle.NodeReady}},
		},
		usage: metering.Cost{EnergyMJ: 12_500},
		gpus: []cluster.GPUMetrics{
			{Rank: 0, HostName: "h1", UUID: "GPU-old", HadUntil: &was, Samples: []host.Sample{{Util: 1}}},
			{
				Rank:     0,
				HostName: "h2",
				UUID:     "GPU-a",
				Model:    "H100",
				Samples: []host.Sample{{Util: 5}, {Util: 80, MemMB: 1024, PowerW: -1, TempC: 60,
					Speed: &host.Speed{SMMHz: 1980, MemMHz: -1, Limits: host.LimitHot | host.LimitPower, Fan: -1, PCIeReplays: 0,
						NVLinkErrors: -1, EnergyJ: 7}}},
			},
			{Rank: 0, HostName: "h2", UUID: "GPU-b", Model: "H100"},
		},
	}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(s); err != nil {
		t.Fatal(err)
	}
	const c, g = `cluster="cl_01jd9w6n3q0000000000000001",`, `{Hostname="h2",UUID="GPU-a",cluster="cl_01jd9w6n3q0000000000000001",gpu="0",modelName="H100",name="train",rank="0"}`
	want := `# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED` + g + ` 1024
# HELP DCGM_FI_DEV_PCIE_REPLAY_COUNTER PCIe retries since the driver was loaded.
# TYPE DCGM_FI_DEV_PCIE_REPLAY_COUNTER counter
DCGM_FI_DEV_PCIE_REPLAY_COUNTER` + g + ` 0
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz), of a GPU that does not idle.
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK` + g + ` 1980
# HELP DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION Energy since the driver was loaded (in mJ).
# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION` + g + ` 7000
# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP` + g + ` 60
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilisation (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL` + g + ` 80
# HELP muster_cluster_billable_seconds_total Seconds that are billed.
# TYPE muster_cluster_billable_seconds_total counter
muster_cluster_billable_seconds_total{` + c + `name="train"} 90
# HELP muster_cluster_cost_total What the cluster costs so far, in the platform's currency.
# TYPE muster_cluster_cost_total counter
muster_cluster_cost_total{` + c + `currency="USD",name="train"} 1.25
# HELP muster_cluster_energy_joules_total Energy its GPUs have used in proven time.
# TYPE muster_cluster_energy_joules_total counter
muster_cluster_energy_joules_total{` + c + `name="train"} 12.5
# HELP muster_cluster_nodes Nodes by state.
# TYPE muster_cluster_nodes gauge
muster_cluster_nodes{` + c + `name="train",state="ready"} 2
# HELP muster_cluster_price_per_hour What an hour of the cluster costs, in the platform's currency.
# TYPE muster_cluster_price_per_hour gauge
muster_cluster_price_per_hour{` + c + `currency="USD",name="train"} 2.5
# HELP muster_gpu_clock_limit 1 for each reason that holds the GPU's clocks down.
# TYPE muster_gpu_clock_limit gauge
muster_gpu_clock_limit{Hostname="h2",UUID="GPU-a",` + c + `gpu="0",modelName="H100",name="train",rank="0",reason="hw_thermal"} 1
muster_gpu_clock_limit{Hostname="h2",UUID="GPU-a",` + c + `gpu="0",modelName="H100",name="train",rank="0",reason="power_limit"} 1
# HELP muster_cluster_running 1 while the cluster runs with all its nodes, else 0.
# TYPE muster_cluster_running gauge
muster_cluster_running{` + c + `name="train"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
