package hosts

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/web/view"
)

// The charts of a host's page show the clocks of its GPUs in the last clockSpan, a sample per clockStep.
const (
	clockSpan  = 3 * time.Hour
	clockStep  = 2 * time.Minute
	clockHours = "last 3 h"
)

// addClock adds a chart of a GPU's clock to its row. samples are sorted by time. A GPU that did nothing has no chart.
// While a GPU idles, its clock is not stored and the chart has no line.
func (r *GPURow) addClock(samples []host.Sample, now time.Time) {
	from := now.Add(-clockSpan)
	at := make([]time.Time, len(samples))
	clocks, known := make([]view.Point, len(samples)), make([]view.Point, len(samples))
	most := 0
	var slow []string
	for i, s := range samples {
		v := s.ClockMHz()
		most = max(most, v)
		at[i], clocks[i], known[i] = s.At, view.Point{At: s.At, V: float64(v)}, view.Point{At: s.At}
		if why := s.SlowedBy(); why != "" && !slices.Contains(slow, why) {
			slow = append(slow, why)
		}
	}
	if most == 0 {
		return
	}
	const hole = 2 * agentapi.CalmTelemetry // what a host without leases may leave between two samples, and more
	r.Chart = view.NewPlot(clocks, from, now, float64(most), hole)
	r.Chart.Gaps = view.NewPlot(known, from, now, 1, hole).Gaps
	r.Chart.Slow = view.SlowSpans(at, func(i int) string { return samples[i].SlowedBy() }, from, now, hole)
	r.ChartLabel = fmt.Sprintf("GPU %d: clock up to %d MHz", r.Index, most)
	if len(slow) > 0 {
		r.ChartLabel += ", slowed by: " + strings.Join(slow, "; ")
	}
}

// clockText describes a GPU's present clock and fan.
func clockText(r GPURow) string {
	text := r.Clock
	if r.Fan != "" {
		text += ", fan " + r.Fan
	}
	return strings.TrimPrefix(text, ", ")
}
