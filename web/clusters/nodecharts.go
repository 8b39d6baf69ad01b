package clusters

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/web/view"
)

// flow is what a chart of nodes draws: one value of a node, or two of opposite directions.
type flow struct {
	names [2]string // "in", "out"; "" = there is only the first
	of    [2]func(host.NodeRate) float64
	unit  string // after an amount of bytes
}

var nodeMeasures = []measure{
	{key: "net", title: "Internet", flow: &flow{[2]string{"in", "out"}, [2]func(host.NodeRate) float64{
		func(r host.NodeRate) float64 { return r.NetRx }, func(r host.NodeRate) float64 { return r.NetTx }}, "/s"}},
	{key: "ranks", title: "Between ranks", flow: &flow{[2]string{"in", "out"}, [2]func(host.NodeRate) float64{
		func(r host.NodeRate) float64 { return r.RanksRx }, func(r host.NodeRate) float64 { return r.RanksTx }}, "/s"}},
	{key: "disk", title: "Disk", flow: &flow{[2]string{"read", "written"}, [2]func(host.NodeRate) float64{
		func(r host.NodeRate) float64 { return r.DiskRead }, func(r host.NodeRate) float64 { return r.DiskWrite }}, "/s"}},
	{key: "scratch", title: "Scratch", flow: &flow{[2]string{"", ""}, [2]func(host.NodeRate) float64{
		func(r host.NodeRate) float64 { return r.Scratch }, nil}, ""}},
}

// measuresOf returns what the charts of a cluster can show.
func measuresOf(c cluster.Cluster) []measure {
	out := measures[:len(measures):len(measures)]
	for _, m := range nodeMeasures {
		if m.key == "ranks" && c.Spec.Nodes < 2 || m.key == "scratch" && c.Spec.ScratchGB == 0 {
			continue
		}
		out = append(out, m)
	}
	return out
}

func (f flow) text(v float64) string { return view.Bytes(int64(v)) + f.unit }

// named returns a value with its direction: "in 3.2 MB/s".
func (f flow) named(i int, v float64) string { return strings.TrimSpace(f.names[i] + " " + f.text(v)) }

// now describes one value of a node's newest reading. Not every host can measure all of them.
func (f flow) now(i int, x host.NodeRate) string {
	if v := f.of[i](x); v >= 0 {
		return f.named(i, v)
	}
	return strings.TrimSpace(f.names[i] + " not known")
}

// lines returns how many values the chart draws.
func (f flow) lines() int {
	if f.of[1] == nil {
		return 1
	}
	return 2
}

// takeNodes adds what a host reports live of its nodes.
func (r *readings) takeNodes(nodes []agentapi.NodeSample) {
	if r.liveNodes == nil {
		r.liveNodes = map[string][]host.NodeSample{}
	}
	for _, s := range nodes {
		all := append(r.liveNodes[s.Lease], host.NodeSampleOf(s, time.UnixMilli(s.AtMS)))
		r.liveNodes[s.Lease] = all[max(0, len(all)-2):]
	}
}

// rateNow returns a node's newest rate, if it is recent.
func (r *readings) rateNow(n cluster.NodeMetrics) (host.NodeRate, bool) {
	if n.HadUntil == nil {
		if live := host.Rates(r.liveNodes[n.Lease.String()], 0); len(live) > 0 && r.to.Sub(live[0].At) <= chartHole {
			return live[0], true
		}
	}
	if k := len(n.Rates); k > 0 && r.to.Sub(n.Rates[k-1].At) <= chartHole {
		return n.Rates[k-1], true
	}
	return host.NodeRate{}, false
}

// flowTop returns the upper edge of all charts: 1, 2 or 5 of a power of ten, so that it does not change with every
// reading.
func (r *readings) flowTop(f flow) float64 {
	most := 1000.0
	for _, n := range r.nodes {
		for _, x := range n.Rates {
			for i := range f.lines() {
				most = max(most, f.of[i](x))
			}
		}
	}
	power := math.Pow(10, math.Floor(math.Log10(most)))
	for _, k := range []float64{1, 2, 5} {
		if most <= k*power {
			return k * power
		}
	}
	return 10 * power
}

// flowRows returns rows of four ranks, with a chart each.
func (r *readings) flowRows(f flow, top float64) (rows []ChartRow) {
	for _, n := range r.nodes {
		if k := len(rows); k == 0 || len(rows[k-1].GPUs) == ranksPerRow {
			rows = append(rows, ChartRow{Rank: n.Rank})
		}
		row := &rows[len(rows)-1]
		row.GPUs, row.Last = append(row.GPUs, r.flowChart(n, f, top)), n.Rank
	}
	return rows
}

func (r *readings) flowChart(n cluster.NodeMetrics, f flow, top float64) Chart {
	out := Chart{Name: fmt.Sprintf("rank %d", n.Rank), Node: true}
	now, known := r.rateNow(n)
	had := cluster.GPUMetrics{HadFrom: n.HadFrom, HadUntil: n.HadUntil}
	for i := range f.lines() {
		points := make([]view.Point, len(n.Rates))
		for k, x := range n.Rates {
			points[k] = view.Point{At: x.At, V: f.of[i](x)}
		}
		name := f.names[i]
		words := stats(points, measure{text: f.text})
		if name != "" && words != "" {
			words = name + ": " + words
		}
		tips := view.Tips(points, r.from, r.to, tipsPerChart, func(v float64) string { return f.named(i, v) })
		if i == 0 {
			out.Plot, out.Stats, out.Tips = r.plot(had, points, top), words, tips
			if known {
				out.Value = f.now(0, now)
			}
			continue
		}
		out.Second = r.plot(had, points, top).Line
		if words != "" {
			out.Stats = strings.TrimPrefix(out.Stats+"; "+words, "; ")
		}
		if known {
			out.Sub = f.now(1, now)
		}
		out.Tips = bothTips(out.Tips, tips)
	}
	if len(r.nodes) > maxTips {
		out.Tips = nil
	}
	return out
}

// bothTips adds the values of the second line to the tips at the same place.
func bothTips(a, b []view.Tip) []view.Tip {
	second := map[string]string{}
	for _, x := range b {
		_, second[x.X], _ = strings.Cut(x.Text, " UTC: ")
	}
	for i, x := range a {
		if second[x.X] != "" {
			a[i].Text += ", " + second[x.X]
		}
	}
	return a
}

// newestNodes returns the nodes from the present host of each rank.
func newestNodes(all []cluster.NodeMetrics) (out []cluster.NodeMetrics) {
	for _, n := range all { // by rank and time
		if k := len(out); k > 0 && out[k-1].Rank == n.Rank {
			out[k-1] = n
			continue
		}
		out = append(out, n)
	}
	return out
}
