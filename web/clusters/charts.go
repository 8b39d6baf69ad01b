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
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

const (
	// chartHole is the shortest time between readings that is shown as a gap. The newest readings reach the history
	// within a minute.
	chartHole = time.Minute
	// chartPoints is about how many readings a chart draws.
	chartPoints = 90
	// maxReadings bounds how many stored readings of all GPUs a page reads.
	maxReadings = 500_000
	// minSpan is the shortest time that charts show.
	minSpan = 2 * time.Minute
	// maxCharts is up to how many GPUs have a chart each. Of more, a chart is the mean of a rank's GPUs.
	maxCharts = 64
	// maxTips is up to how many charts have values to hover over: each value is an element.
	maxTips, tipsPerChart = 16, 30
)

// chartRange is how far back charts go.
type chartRange struct {
	key, title string
	span       time.Duration // 0 = since the cluster first ran
}

var chartRanges = []chartRange{
	{"15m", "15 min", 15 * time.Minute},
	{"1h", "1 h", time.Hour},
	{"6h", "6 h", 6 * time.Hour},
	{"all", "All", 0},
}

// rangeOf returns the range named by ?range=.
func rangeOf(key string) chartRange {
	i := slices.IndexFunc(chartRanges, func(r chartRange) bool { return r.key == key })
	return chartRanges[max(i, 0)]
}

// chartChoice is what the visitor wants the charts to show.
type chartChoice struct {
	measure measure
	span    chartRange
	all     bool // all nodes are listed, however many there are
}

func choiceOf(v *page.Visit) chartChoice {
	return chartChoice{measureOf(v.R.FormValue("measure")), rangeOf(v.R.FormValue("range")),
		v.R.FormValue("nodes") == "all"}
}

// query is the query of a URL with this choice.
func (c chartChoice) query() string {
	q := "measure=" + c.measure.key + "&range=" + c.span.key
	if c.all {
		q += "&nodes=all"
	}
	return q
}

// measure is one quantity of a GPU that a chart draws.
type measure struct {
	key, title string
	of         func(host.Sample) int
	text       func(v float64) string
	scale      func(float64) string
	flow       *flow // of a node, in place of the above but text; nil = of a GPU
}

var measures = []measure{
	{key: "util", title: "Utilisation", of: func(s host.Sample) int { return s.Util },
		text:  func(v float64) string { return fmt.Sprintf("%.0f %%", v) },
		scale: func(float64) string { return "0 to 100 %" }},
	{key: "mem", title: "Memory", of: func(s host.Sample) int { return s.MemMB },
		text:  func(v float64) string { return fmt.Sprintf("%.1f GiB", v/1024) },
		scale: func(top float64) string { return fmt.Sprintf("0 to %.0f GiB", top/1024) }},
	{key: "power", title: "Power", of: func(s host.Sample) int { return s.PowerW },
		text:  func(v float64) string { return fmt.Sprintf("%.0f W", v) },
		scale: func(top float64) string { return fmt.Sprintf("0 to %.0f W", top) }},
	{key: "clock", title: "Clock", of: func(s host.Sample) int { return s.ClockMHz() },
		text:  func(v float64) string { return fmt.Sprintf("%.2f GHz", v/1000) },
		scale: func(top float64) string { return fmt.Sprintf("0 to %.1f GHz, while at work", top/1000) }},
}

// measureOf returns the measure named by ?measure=.
func measureOf(key string) measure {
	all := slices.Concat(measures, nodeMeasures)
	i := slices.IndexFunc(all, func(m measure) bool { return m.key == key })
	return all[max(i, 0)]
}

// readings are the telemetry of a cluster's GPUs and nodes over a range, from the present host of each rank.
type readings struct {
	from, to time.Time
	step     time.Duration // between samples
	gpus     []cluster.GPUMetrics
	nodes    []cluster.NodeMetrics  // none unless they are shown
	live     map[string]host.Sample // by GPU, newer than the history; includes other clusters' GPUs on the same hosts
	// liveNodes are the two newest samples of nodes, by lease.
	liveNodes map[string][]host.NodeSample
}

// read updates r. Its range ends at a whole step, so that a live page reads and renders again only when there may be
// new data.
func (s *Pages) read(ctx context.Context, who account.Principal, c cluster.Cluster, now time.Time,
	choice chartChoice, r *readings) error {
	end := now
	if c.EndedAt != nil {
		end = *c.EndedAt
	}
	span := choice.span.span
	if span == 0 {
		since := c.CreatedAt
		if c.RunningAt != nil {
			since = *c.RunningAt
		}
		span = max(end.Sub(since), chartRanges[0].span)
	}
	span = min(span, host.TelemetryStep*maxReadings/time.Duration(max(1, c.Spec.GPUs())))
	step := max(host.TelemetryStep, (span / chartPoints).Truncate(host.TelemetryStep))
	to := end.Truncate(step).Add(step)
	if to.Equal(r.to) {
		return nil
	}
	from := to.Add(-span)
	if since := c.CreatedAt.Truncate(step); since.After(from) { // what was before is not shown: the cluster was not there
		if from = since; to.Sub(from) < minSpan {
			from = to.Add(-minSpan)
		}
	}
	r.from, r.to, r.step, r.gpus = from, to, step, nil
	all, err := s.Clusters.Views.Metrics(ctx, who.Org, c.ID, r.from, r.to, step)
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
	if choice.measure.flow != nil {
		nodes, err := s.Clusters.Views.NodeMetrics(ctx, who.Org, c.ID, r.from, r.to, step)
		if err != nil {
			return err
		}
		r.nodes = newestNodes(nodes)
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
	r.takeNodes(t.Nodes)
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
func (r *readings) charts(c cluster.Cluster, choice chartChoice) Charts {
	m := choice.measure
	out := Charts{Measure: m.key, Range: choice.span.key, From: view.Clock(r.from, r.to), To: view.Clock(r.to, r.to)}
	base := "/clusters/" + c.ID.String() + "?"
	link := func(c chartChoice) string { return base + c.query() + "#charts" }
	for _, x := range measuresOf(c) {
		out.Measures = append(out.Measures, Measure{x.key, x.title, link(chartChoice{x, choice.span, choice.all})})
	}
	for _, x := range chartRanges {
		out.Ranges = append(out.Ranges, Measure{x.key, x.title, link(chartChoice{m, x, choice.all})})
	}
	any := !c.State.Ended()
	for _, g := range r.gpus {
		any = any || len(g.Samples) > 0
	}
	if m.flow != nil {
		top := r.flowTop(*m.flow)
		out.Rows, out.Scale, out.Nodes = r.flowRows(*m.flow, top), "0 to "+m.flow.text(top), true
		for _, n := range r.nodes {
			any = any || len(n.Rates) > 0
		}
	} else {
		r.gpuRows(m, &out)
	}
	if !any {
		return Charts{Measure: m.key, Range: choice.span.key}
	}
	return out
}

// gpuRows adds the charts of a quantity of GPUs.
func (r *readings) gpuRows(m measure, out *Charts) {
	top := r.top(m)
	out.Scale = m.scale(top)
	if len(r.gpus) > maxCharts {
		out.Rows, out.Means = r.byRank(m, top), true
	} else {
		for _, g := range r.gpus {
			if n := len(out.Rows); n == 0 || out.Rows[n-1].Rank != g.Rank {
				out.Rows = append(out.Rows, ChartRow{Rank: g.Rank, Host: g.HostName})
			}
			row := &out.Rows[len(out.Rows)-1]
			chart := r.chart(g, m, top)
			for _, s := range g.Samples {
				if why := s.SlowedBy(); why != "" && !slices.Contains(out.Slowed, why) {
					out.Slowed = append(out.Slowed, why)
				}
			}
			row.GPUs = append(row.GPUs, chart)
		}
	}
}

// byRank returns rows of four ranks, whose charts are the mean of the rank's GPUs.
func (r *readings) byRank(m measure, top float64) (rows []ChartRow) {
	for i := 0; i < len(r.gpus); {
		mean, n := r.gpus[i], 1
		sums := map[time.Time][2]float64{}
		for n = 0; i+n < len(r.gpus) && r.gpus[i+n].Rank == mean.Rank; n++ {
			for _, s := range r.gpus[i+n].Samples {
				if v := m.of(s); v >= 0 {
					at := s.At.Truncate(r.step)
					sums[at] = [2]float64{sums[at][0] + float64(v), sums[at][1] + 1}
				}
			}
		}
		var points []view.Point
		for at, x := range sums {
			points = append(points, view.Point{At: at, V: x[0] / x[1]})
		}
		slices.SortFunc(points, func(a, b view.Point) int { return a.At.Compare(b.At) })
		chart := Chart{Name: fmt.Sprintf("rank %d", mean.Rank), Stats: stats(points, m), Plot: r.plot(mean, points, top)}
		if k := len(points); k > 0 && r.to.Sub(points[k-1].At) <= chartHole {
			chart.Value = m.text(points[k-1].V)
		}
		if k := len(rows); k == 0 || len(rows[k-1].GPUs) == ranksPerRow {
			rows = append(rows, ChartRow{Rank: mean.Rank})
		}
		row := &rows[len(rows)-1]
		row.GPUs, row.Last = append(row.GPUs, chart), mean.Rank
		i += n
	}
	return rows
}

// ranksPerRow is how many ranks a row of charts of a large cluster has.
const ranksPerRow = 4

// plot draws the readings of a GPU. Time in which the cluster did not have it is no gap.
func (r *readings) plot(g cluster.GPUMetrics, points []view.Point, top float64) view.Plot {
	hole := max(chartHole, 3*r.step)
	p := view.NewPlot(points, r.from, r.to, top, hole)
	span := r.to.Sub(r.from)
	edge := func(t time.Time) float64 {
		return min(max(view.PlotWidth*float64(t.Sub(r.from))/float64(span), 0), view.PlotWidth)
	}
	had, until := edge(g.HadFrom), float64(view.PlotWidth)
	if g.HadUntil != nil {
		until = edge(*g.HadUntil)
	}
	// Readings arrive some time after they were taken, so the first and the newest minute are no gap either.
	short := view.PlotWidth * float64(hole) / float64(span)
	p.Gaps = slices.DeleteFunc(p.Gaps, func(x [2]float64) bool { return min(x[1], until)-max(x[0], had) <= short })
	for i := range p.Gaps {
		p.Gaps[i] = [2]float64{max(p.Gaps[i][0], had), min(p.Gaps[i][1], until)}
	}
	return p
}

func (r *readings) chart(g cluster.GPUMetrics, m measure, top float64) Chart {
	points := make([]view.Point, len(g.Samples))
	for i, s := range g.Samples {
		points[i] = view.Point{At: s.At, V: float64(m.of(s))}
	}
	out := Chart{Plot: r.plot(g, points, top), Stats: stats(points, m)}
	if m.key == "clock" { // an idle GPU's is not stored: only where no sample is, one is missing
		idle := slices.Clone(points)
		for i := range idle {
			idle[i].V = max(idle[i].V, 0)
		}
		out.Gaps = r.plot(g, idle, top).Gaps
	}
	out.Plot.Slow = view.SlowSpans(times(g.Samples), func(i int) string { return g.Samples[i].SlowedBy() }, r.from, r.to,
		max(chartHole, 3*r.step))
	if len(r.gpus) <= maxTips {
		out.Tips = view.Tips(points, r.from, r.to, tipsPerChart, m.text)
	}
	if s, ok := r.now(g); ok {
		if v := m.of(s); v >= 0 {
			out.Value = m.text(float64(v))
		}
		if s.TempC >= 0 {
			out.Sub = fmt.Sprintf("%d °C", s.TempC)
		}
		out.Slow = s.SlowedBy()
	}
	return out
}

func times(samples []host.Sample) []time.Time {
	out := make([]time.Time, len(samples))
	for i, s := range samples {
		out[i] = s.At
	}
	return out
}

// stats returns the mean and the highest of some readings in words; "" without readings.
func stats(points []view.Point, m measure) string {
	sum, most, n := 0.0, 0.0, 0
	for _, p := range points {
		if p.V >= 0 {
			sum, most, n = sum+p.V, max(most, p.V), n+1
		}
	}
	if n == 0 {
		return ""
	}
	return "mean " + m.text(sum/float64(n)) + ", highest " + m.text(most)
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
