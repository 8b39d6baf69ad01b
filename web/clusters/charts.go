package clusters

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/web/view"
)

const (
	chartSpan = 10 * time.Minute
	// chartHole is the longest time between readings that a chart joins; a longer one is shown as a gap. The newest
	// readings reach the history within a minute.
	chartHole = time.Minute
)

// measure is one quantity of a GPU that a chart draws.
type measure struct {
	key, title string
	of         func(host.Sample) int
	text       func(v float64) string
	scale      func(float64) string
}

var measures = []measure{
	{"util", "Utilisation", func(s host.Sample) int { return s.Util },
		func(v float64) string { return fmt.Sprintf("%.0f %%", v) }, func(float64) string { return "0 to 100 %" }},
	{"mem", "Memory", func(s host.Sample) int { return s.MemMB },
		func(v float64) string { return fmt.Sprintf("%.1f GB", v/1024) },
		func(top float64) string { return fmt.Sprintf("0 to %.0f GB", top/1024) }},
	{"power", "Power", func(s host.Sample) int { return s.PowerW },
		func(v float64) string { return fmt.Sprintf("%.0f W", v) },
		func(top float64) string { return fmt.Sprintf("0 to %.0f W", top) }},
}

// measureOf returns the measure named by ?measure=.
func measureOf(key string) measure {
	i := slices.IndexFunc(measures, func(m measure) bool { return m.key == key })
	return measures[max(i, 0)]
}

// readings are the telemetry of a cluster's GPUs in the last minutes, from the present host of each rank.
type readings struct {
	from, to time.Time
	gpus     []cluster.GPUMetrics
	live     map[string]host.Sample // by GPU, newer than the history; includes other clusters' GPUs on the same hosts
}

// read updates r. Its range ends at a whole step, so that a live page reads and renders again only when there may be
// new data.
func (s *Pages) read(ctx context.Context, who account.Principal, c cluster.Cluster, now time.Time, r *readings) error {
	end := now
	if c.EndedAt != nil {
		end = *c.EndedAt
	}
	to := end.Truncate(host.TelemetryStep).Add(host.TelemetryStep)
	if to.Equal(r.to) {
		return nil
	}
	r.from, r.to, r.gpus = to.Add(-chartSpan), to, nil
	all, err := s.Clusters.Metrics(ctx, who.Org, c.ID, r.from, r.to, host.TelemetryStep)
	if err != nil {
		return err
	}
	newest := map[int]time.Time{}
	for _, g := range all {
		if g.HadFrom.After(newest[g.Rank]) {
			newest[g.Rank] = g.HadFrom
		}
	}
	for _, g := range all {
		if g.HadFrom.Equal(newest[g.Rank]) {
			r.gpus = append(r.gpus, g)
		}
	}
	return nil
}

// take adds what a host reports live.
func (r *readings) take(t agentapi.Telemetry) {
	if r.live == nil {
		r.live = map[string]host.Sample{}
	}
	for _, s := range t.Samples {
		r.live[s.GPU] = host.SampleOf(s, time.UnixMilli(s.AtMS))
	}
}

// now returns a GPU's newest sample, if it is recent.
func (r *readings) now(g cluster.GPUMetrics) (host.Sample, bool) {
	if s, ok := r.live[g.UUID]; ok && g.HadUntil == nil && r.to.Sub(s.At) <= chartHole {
		return s, true
	}
	if n := len(g.Samples); n > 0 && r.to.Sub(g.Samples[n-1].At) <= chartHole {
		return g.Samples[n-1], true
	}
	return host.Sample{}, false
}

// mean returns the mean over a rank's GPUs now; "" without samples.
func (r *readings) mean(rank int, of func(host.Sample) int) string {
	sum, n := 0, 0
	for _, g := range r.gpus {
		if s, ok := r.now(g); ok && g.Rank == rank && of(s) >= 0 {
			sum, n = sum+of(s), n+1
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", float64(sum)/float64(n))
}

// charts draws one measure of every GPU on one scale. An ended cluster without readings has no charts.
func (r *readings) charts(c cluster.Cluster, m measure) Charts {
	out := Charts{Measure: m.key, Span: "last 10 min"}
	if c.State.Ended() {
		out.Span = "its last 10 min"
	}
	for _, x := range measures {
		out.Measures = append(out.Measures, Measure{
			Key:   x.key,
			Title: x.title,
			Href:  "/clusters/" + c.ID.String() + "?measure=" + x.key + "#charts",
		})
	}
	top := r.top(m)
	out.Scale = m.scale(top)
	any := !c.State.Ended()
	for _, g := range r.gpus {
		if n := len(out.Rows); n == 0 || out.Rows[n-1].Rank != g.Rank {
			out.Rows = append(out.Rows, ChartRow{Rank: g.Rank, Host: g.HostName})
		}
		row := &out.Rows[len(out.Rows)-1]
		row.GPUs = append(row.GPUs, r.chart(g, m, top))
		any = any || len(g.Samples) > 0
	}
	if !any {
		return Charts{Measure: m.key}
	}
	return out
}

func (r *readings) chart(g cluster.GPUMetrics, m measure, top float64) Chart {
	points := make([]view.Point, len(g.Samples))
	for i, s := range g.Samples {
		points[i] = view.Point{At: s.At, V: float64(m.of(s))}
	}
	out := Chart{Plot: view.NewPlot(points, r.from, r.to, top, chartHole)}
	if s, ok := r.now(g); ok {
		if v := m.of(s); v >= 0 {
			out.Value = m.text(float64(v))
		}
		if s.TempC >= 0 {
			out.Sub = fmt.Sprintf("%d °C", s.TempC)
		}
	}
	return out
}

// top returns the upper edge of all charts, rounded so that it does not change with every reading.
func (r *readings) top(m measure) float64 {
	switch m.key {
	case "util":
		return 100
	case "mem":
		top := int64(1024)
		for _, g := range r.gpus {
			top = max(top, g.VRAMMB)
		}
		return float64(top)
	}
	most := 1
	for _, g := range r.gpus {
		for _, s := range g.Samples {
			most = max(most, m.of(s))
		}
	}
	return float64((most + 99) / 100 * 100)
}
