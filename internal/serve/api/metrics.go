package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

const (
	maxMetricsSpan = 31 * 24 * time.Hour
	maxSamples     = 1000 // of one GPU in one answer; the step grows to keep to it
)

type metricsInput[T any] struct {
	ID T `path:"id"`
	client.MetricsQuery
}

// metrics shows a GPU's readings only for the time in which it belonged to the cluster.
func (a clustersAPI) metrics(ctx context.Context, p account.Principal,
	in *metricsInput[id.Cluster]) (client.Metrics, error) {
	c, err := a.clusters.Views.Get(ctx, p.Org, in.ID)
	if err != nil {
		return client.Metrics{}, err
	}
	from, to, step, err := in.span(time.Now().UTC())
	if err != nil {
		return client.Metrics{}, err
	}
	v := client.Metrics{
		From:  from,
		To:    to,
		Step:  int(step.Seconds()),
		GPUs:  []client.GPUMetrics{},
		Nodes: []client.NodeMetrics{},
		Network: client.NetworkMetrics{
			BusbwGbps: c.Network.BusbwGbps, RTTMicros: orEmpty(c.Network.RTTMicros), PairGbps: orEmpty(c.Network.PairGbps),
		},
	}
	gpus, err := a.clusters.Views.Metrics(ctx, p.Org, in.ID, from, to, step)
	if err != nil {
		return client.Metrics{}, err
	}
	for _, g := range gpus {
		m := client.GPUMetrics{
			Rank:     g.Rank,
			HostID:   g.Host,
			HostName: g.HostName,
			UUID:     g.UUID,
			Model:    g.Model,
			VRAMMB:   g.VRAMMB,
			Samples:  []client.Sample{},
		}
		for _, s := range g.Samples {
			m.Samples = append(m.Samples, sampleOf(s))
		}
		v.GPUs = append(v.GPUs, m)
	}
	nodes, err := a.clusters.Views.NodeMetrics(ctx, p.Org, in.ID, from, to, step)
	if err != nil {
		return client.Metrics{}, err
	}
	for _, n := range nodes {
		v.Nodes = append(v.Nodes, nodeMetrics(n))
	}
	return v, nil
}

func sampleOf(s host.Sample) client.Sample {
	return client.Sample{
		At:     s.At.UTC(),
		Util:   known(s.Util),
		MemMB:  known(s.MemMB),
		PowerW: known(s.PowerW),
		TempC:  known(s.TempC),
		Speed:  speedOf(s.Speed),
	}
}

func speedOf(v *host.Speed) *client.GPUSpeed {
	if v == nil {
		return nil
	}
	return &client.GPUSpeed{SMMHz: known(v.SMMHz), MemMHz: known(v.MemMHz), Limits: v.Limits.Names(),
		FanPercent: known(v.Fan), PCIeReplays: known(v.PCIeReplays), NVLinkErrors: known(v.NVLinkErrors),
		EnergyJ: known(v.EnergyJ)}
}

// metrics returns what the GPUs of a host of the caller's did.
func (a hostsAPI) metrics(ctx context.Context, p account.Principal,
	in *metricsInput[id.Host]) (client.HostMetrics, error) {
	d, err := a.hosts.Get(ctx, p, in.ID)
	if err != nil {
		return client.HostMetrics{}, err
	}
	from, to, step, err := in.span(time.Now().UTC())
	if err != nil {
		return client.HostMetrics{}, err
	}
	series, err := a.hosts.History(ctx, d.GPUs, from, to, step)
	if err != nil {
		return client.HostMetrics{}, err
	}
	v := client.HostMetrics{From: from, To: to, Step: int(step.Seconds()), GPUs: []client.HostGPUMetrics{}}
	for i, g := range d.GPUs {
		m := client.HostGPUMetrics{Index: g.Index, UUID: g.UUID, Model: g.Model, Samples: []client.Sample{}}
		for _, s := range series[i].Samples {
			m.Samples = append(m.Samples, sampleOf(s))
		}
		v.GPUs = append(v.GPUs, m)
	}
	return v, nil
}

func nodeMetrics(n cluster.NodeMetrics) client.NodeMetrics {
	m := client.NodeMetrics{Rank: n.Rank, LeaseID: n.Lease, HostID: n.Host, HostName: n.HostName,
		Samples: []client.NodeRate{}}
	for _, r := range n.Rates {
		m.Samples = append(m.Samples, client.NodeRate{At: r.At.UTC(), NetRx: known(r.NetRx), NetTx: known(r.NetTx),
			RanksRx: known(r.RanksRx), RanksTx: known(r.RanksTx), DiskRead: known(r.DiskRead), DiskWrite: known(r.DiskWrite),
			Scratch: known(r.Scratch)})
	}
	return m
}

// span returns the requested time, bounded, and a step that keeps the response small.
func (in *metricsInput[T]) span(now time.Time) (from, to time.Time, step time.Duration, err error) {
	to = in.To.UTC()
	if in.To.IsZero() || to.After(now) {
		to = now
	}
	from = in.From.UTC()
	if in.From.IsZero() {
		from = to.Add(-time.Hour)
	}
	switch {
	case !from.Before(to):
		return from, to, 0, fault.InvalidField("query.from", "has to be before 'to'")
	case to.Sub(from) > maxMetricsSpan:
		return from, to, 0, fault.InvalidField("query.from", "at most 31 days can be asked for at once")
	}
	step = max(time.Duration(in.Step)*time.Second, host.TelemetryStep)
	if finest := to.Sub(from) / maxSamples; step < finest {
		step = finest.Truncate(time.Second) + time.Second
	}
	return from, to, step, nil
}

func known[T int | int64 | float64](v T) *T {
	if v < 0 {
		return nil
	}
	return &v
}

func orEmpty(m [][]float64) [][]float64 {
	if m == nil {
		return [][]float64{}
	}
	return m
}

// newest is how old a reading may be to be shown as the present one.
const newest = 2 * time.Minute

// prometheus returns a cluster's metrics for the renter's own Prometheus, which sends the token as a bearer
// token. GPUs have the names of NVIDIA's DCGM exporter, so that its dashboards work.
func (a clustersAPI) prometheus(w http.ResponseWriter, r *http.Request, p account.Principal,
	in *of[id.Cluster]) error {
	cl := in.ID
	c, err := a.clusters.Views.Get(r.Context(), p.Org, cl)
	if err != nil {
		return err
	}
	cost, err := a.leases.Cost(r.Context(), cl)
	if err != nil {
		return err
	}
	now := time.Now()
	gpus, err := a.clusters.Views.Metrics(r.Context(), p.Org, cl, now.Add(-newest), now, host.TelemetryStep)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(scrape{c, cost, gpus}); err != nil {
		return err
	}
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

// scrape is the state of a cluster at one scrape.
type scrape struct {
	c     cluster.Cluster
	usage metering.Cost
	gpus  []cluster.GPUMetrics
}

var (
	ofCluster = []string{"cluster", "name"}
	ofGPU     = []string{"cluster", "name", "rank", "Hostname", "gpu", "UUID", "modelName"}

	clusterRunning = prometheus.NewDesc("muster_cluster_running", "1 while the cluster runs with all its nodes, else 0.",
		ofCluster, nil)
	clusterNodes = prometheus.NewDesc("muster_cluster_nodes", "Nodes by state.", append(ofCluster[:2:2], "state"), nil)
	clusterCost  = prometheus.NewDesc("muster_cluster_cost_total",
		"What the cluster costs so far, in the platform's currency.", append(ofCluster[:2:2], "currency"), nil)
	clusterRate = prometheus.NewDesc("muster_cluster_price_per_hour",
		"What an hour of the cluster costs, in the platform's currency.", append(ofCluster[:2:2], "currency"), nil)
	clusterBillable = prometheus.NewDesc("muster_cluster_billable_seconds_total", "Seconds that are billed.", ofCluster,
		nil)
	clusterEnergy = prometheus.NewDesc("muster_cluster_energy_joules_total", "Energy its GPUs have used in proven time.",
		ofCluster, nil)

	gpuUtil  = prometheus.NewDesc("DCGM_FI_DEV_GPU_UTIL", "GPU utilisation (in %).", ofGPU, nil)
	gpuMem   = prometheus.NewDesc("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", ofGPU, nil)
	gpuPower = prometheus.NewDesc("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", ofGPU, nil)
	gpuTemp  = prometheus.NewDesc("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", ofGPU, nil)
	gpuSM    = prometheus.NewDesc("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz), of a GPU that does not idle.",
		ofGPU, nil)
	gpuMemClock = prometheus.NewDesc("DCGM_FI_DEV_MEM_CLOCK",
		"Memory clock frequency (in MHz), of a GPU that does not idle.", ofGPU, nil)
	gpuFan     = prometheus.NewDesc("DCGM_FI_DEV_FAN_SPEED", "Speed of its fastest fan (in %).", ofGPU, nil)
	gpuReplays = prometheus.NewDesc("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "PCIe retries since the driver was loaded.",
		ofGPU, nil)
	gpuLinks = prometheus.NewDesc("muster_gpu_nvlink_errors_total",
		"CRC errors, replays and recoveries of all NVLinks since the driver was loaded.", ofGPU, nil)
	gpuEnergy = prometheus.NewDesc("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
		"Energy since the driver was loaded (in mJ).", ofGPU, nil)
	gpuLimit = prometheus.NewDesc("muster_gpu_clock_limit", "1 for each reason that holds the GPU's clocks down.",
		append(ofGPU[:len(ofGPU):len(ofGPU)], "reason"), nil)
)

// Describe sends nothing: what there is depends on the cluster.
func (s scrape) Describe(chan<- *prometheus.Desc) {}

func (s scrape) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{s.c.ID.String(), s.c.Name},
			labels...)...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, append([]string{s.c.ID.String(), s.c.Name},
			labels...)...)
	}
	running := 0.0
	if s.c.State == lifecycle.Running {
		running = 1
	}
	gauge(clusterRunning, running)
	states := map[string]float64{}
	for _, n := range s.c.Nodes {
		states[string(n.State)]++
	}
	for state, n := range states {
		gauge(clusterNodes, n, state)
	}
	gauge(clusterRate, float64(s.c.PricePerHour)/1e6, s.c.Currency)
	counter(clusterCost, float64(s.c.CostSoFar)/1e9, s.c.Currency)
	counter(clusterBillable, time.Duration(s.c.BillableSeconds).Seconds())
	counter(clusterEnergy, float64(s.usage.EnergyMJ)/1e3)
	s.readings(gauge, counter)
}

// readings are the newest of each GPU that the cluster has now.
func (s scrape) readings(gauge, counter func(*prometheus.Desc, float64, ...string)) {
	index := map[int]int{} // of the next GPU, by rank
	for _, g := range s.gpus {
		if g.HadUntil != nil {
			continue
		}
		labels := []string{strconv.Itoa(g.Rank), g.HostName, strconv.Itoa(index[g.Rank]), g.UUID, g.Model}
		index[g.Rank]++
		if len(g.Samples) == 0 {
			continue
		}
		last := g.Samples[len(g.Samples)-1]
		for d, v := range map[*prometheus.Desc]int{
			gpuUtil:  last.Util,
			gpuMem:   last.MemMB,
			gpuPower: last.PowerW,
			gpuTemp:  last.TempC,
		} {
			if v >= 0 { // otherwise the GPU does not report it
				gauge(d, float64(v), labels...)
			}
		}
		s.speed(g.Samples, labels, gauge, counter)
	}
}

// speed is how fast a GPU runs now. The counters are the newest that it reported while it did something.
func (s scrape) speed(samples []host.Sample, labels []string,
	gauge, counter func(*prometheus.Desc, float64, ...string)) {
	if v := samples[len(samples)-1].Speed; v != nil {
		for d, n := range map[*prometheus.Desc]int{gpuSM: v.SMMHz, gpuMemClock: v.MemMHz, gpuFan: v.Fan} {
			if n >= 0 {
				gauge(d, float64(n), labels...)
			}
		}
		for _, reason := range v.Limits.Names() {
			gauge(gpuLimit, 1, append(labels[:len(labels):len(labels)], reason)...)
		}
	}
	most := map[*prometheus.Desc]int64{}
	for _, x := range samples {
		if v := x.Speed; v != nil {
			most[gpuReplays] = max(most[gpuReplays], v.PCIeReplays+1)
			most[gpuLinks] = max(most[gpuLinks], v.NVLinkErrors+1)
			most[gpuEnergy] = max(most[gpuEnergy], v.EnergyJ+1)
		}
	}
	for d, n := range most {
		switch {
		case n == 0: // not reported
		case d == gpuEnergy:
			counter(d, 1000*float64(n-1), labels...)
		default:
			counter(d, float64(n-1), labels...)
		}
	}
}
