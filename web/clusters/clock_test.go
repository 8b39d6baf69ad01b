package clusters

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
)

// The chart of a GPU's clock marks when something slowed it down, with the reason. While the GPU idles there is no
// line, and nothing is hatched as missing.
func TestTheChartOfClocksMarksWhatSlowsAGPUDown(t *testing.T) {
	t.Parallel()
	to := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	gpu := cluster.GPUMetrics{HostName: "lisbon-1"}
	for i := range 90 {
		s := host.Sample{At: to.Add(time.Duration(i-90) * 10 * time.Second), Util: 99, MemMB: -1, PowerW: -1, TempC: -1}
		switch {
		case i < 30: // it idles
			s.Util = 0
		case i < 60:
			s.Speed = &host.Speed{SMMHz: 1980, Limits: host.LimitPower}
		default:
			s.Speed = &host.Speed{SMMHz: 990, Limits: host.LimitPower | host.LimitBrake}
		}
		gpu.Samples = append(gpu.Samples, s)
	}
	r := readings{from: to.Add(-15 * time.Minute), to: to, step: host.TelemetryStep, gpus: []cluster.GPUMetrics{gpu}}
	c := r.charts(cluster.Cluster{State: lifecycle.Running}, chartChoice{measure: measureOf("clock"), span: rangeOf("")})
	chart := c.Rows[0].GPUs[0]
	if c.Scale != "0 to 2.0 GHz, while at work" || chart.Value != "0.99 GHz" || chart.Slow != "power brake" ||
		chart.Stats != "mean 1.49 GHz, highest 1.98 GHz" || len(chart.Gaps) != 0 || !strings.HasPrefix(chart.Line, "M50.0,") {
		t.Errorf("%q %+v", c.Scale, chart)
	}
	if len(chart.Plot.Slow) != 1 || chart.Plot.Slow[0].X != "100.0" ||
		chart.Plot.Slow[0].Text != "11:55:00 to 11:59:50 UTC: power brake" ||
		!strings.HasSuffix(c.note(), "; marked: slowed by power brake") {
		t.Errorf("%+v, %q", chart.Plot.Slow, c.note())
	}
	r.gpus[0].Samples = gpu.Samples[:60]
	c = r.charts(cluster.Cluster{State: lifecycle.Running}, chartChoice{measure: measureOf("util"), span: rangeOf("")})
	if got := c.Rows[0].GPUs[0].Plot.Slow; len(got) != 0 || strings.Contains(c.note(), "slowed") {
		t.Errorf("a power limit is shown as a defect: %+v, %q", got, c.note())
	}
}
