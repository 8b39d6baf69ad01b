package clusters

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
)

// A chart shows its range, its values in words and values to hover over, and its choices keep each other.
func TestChartsHaveValuesAndRanges(t *testing.T) {
	t.Parallel()
	to := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	gpu := cluster.GPUMetrics{HostName: "lisbon-1", VRAMMB: 81920}
	for i := range 90 {
		util := 50
		if i == 45 {
			util = 98
		}
		gpu.Samples = append(gpu.Samples, host.Sample{At: to.Add(time.Duration(i-90) * 10 * time.Second), Util: util,
			MemMB: 1024, PowerW: -1, TempC: 60})
	}
	r := readings{from: to.Add(-15 * time.Minute), to: to, step: host.TelemetryStep, gpus: []cluster.GPUMetrics{gpu}}
	c := r.charts(cluster.Cluster{State: lifecycle.Running}, chartChoice{measure: measureOf("util"), span: rangeOf("")})
	if c.Range != "15m" || c.From != "11:45:00" || c.To != "12:00:00" || len(c.Ranges) != 4 {
		t.Errorf("%+v", c)
	}
	if !strings.Contains(c.Ranges[2].Href, "measure=util&range=6h") || !strings.Contains(c.Measures[1].Href,
		"measure=mem&range=15m") {
		t.Errorf("%+v %+v", c.Ranges, c.Measures)
	}
	chart := c.Rows[0].GPUs[0]
	if chart.Stats != "mean 51 %, highest 98 %" || chart.Value != "50 %" || len(chart.Tips) != tipsPerChart {
		t.Errorf("%q %q, %d tips", chart.Stats, chart.Value, len(chart.Tips))
	}
	if tip := chart.Tips[15].Text; tip != "11:52:30 UTC: 66 %" {
		t.Errorf("%q", tip)
	}
	c = r.charts(cluster.Cluster{State: lifecycle.Running}, chartChoice{measure: measureOf("power"), span: rangeOf("all")})
	if chart := c.Rows[0].GPUs[0]; chart.Stats != "" || len(chart.Tips) != 0 || c.Range != "all" {
		t.Errorf("without readings: %+v", chart)
	}
}

// A fresh cluster's charts show its own time, and time in which it did not have the GPU is not hatched as missing. Time
// in which a reading is missing is.
func TestChartsOfAFreshClusterAreNotHatched(t *testing.T) {
	t.Parallel()
	to := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	gpu := cluster.GPUMetrics{HostName: "lisbon-1", VRAMMB: 81920, HadFrom: to.Add(-3 * time.Minute)}
	for i := range 15 {
		gpu.Samples = append(gpu.Samples, host.Sample{At: to.Add(time.Duration(i-15) * 10 * time.Second), Util: 50, MemMB: -1,
			PowerW: -1, TempC: -1})
	}
	r := readings{from: to.Add(-15 * time.Minute), to: to, step: host.TelemetryStep, gpus: []cluster.GPUMetrics{gpu}}
	choice := chartChoice{measure: measureOf("util"), span: rangeOf("")}
	gaps := func() [][2]float64 {
		return r.charts(cluster.Cluster{State: lifecycle.Running}, choice).Rows[0].GPUs[0].Gaps
	}
	if got := gaps(); len(got) != 0 {
		t.Errorf("hatched: %v", got)
	}
	r.gpus[0].HadFrom = to.Add(-10 * time.Minute) // and nothing came for seven and a half minutes
	if got := gaps(); len(got) != 1 || got[0][0] != 50 || got[0][1] != 125 {
		t.Errorf("hatched: %v, want from 50 to 125", got)
	}
}
