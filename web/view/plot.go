package view

import (
	"fmt"
	"strings"
	"time"
)

// The dimensions of a plot, in its own units; the stylesheet stretches it.
const (
	PlotWidth  = 150
	PlotHeight = 30
	plotTop    = 3  // y of the highest value
	plotBase   = 29 // y of zero
)

// Point is one reading; V < 0 means no reading.
type Point struct {
	At time.Time
	V  float64
}

// Plot is a line over time with the area under it, as SVG paths, and the spans without data as pairs of x. These are
// hatched: missing data is never drawn as zero.
type Plot struct {
	Line, Area string
	Gaps       [][2]float64
	Slow       []Tip // spans in which something slowed the GPU down, with what
}

// NewPlot draws points, sorted by time, between from and to; top is the value at the upper edge. A gap separates points
// that are more than hole apart.
func NewPlot(points []Point, from, to time.Time, top float64, hole time.Duration) Plot {
	span := to.Sub(from).Seconds()
	if span <= 0 || top <= 0 {
		return Plot{Gaps: [][2]float64{{0, PlotWidth}}}
	}
	x := func(t time.Time) float64 { return min(max(PlotWidth*t.Sub(from).Seconds()/span, 0), PlotWidth) }
	var p Plot
	var line, area strings.Builder
	var run []Point
	last := from
	draw := func() {
		if len(run) == 0 {
			return
		}
		for i, pt := range run {
			sep := " "
			if i == 0 {
				sep = "M"
			}
			fmt.Fprintf(&line, "%s%s,%s", sep, Coord(x(pt.At)), Coord(plotY(pt.V, top)))
		}
		first, end := x(run[0].At), x(run[len(run)-1].At)
		fmt.Fprintf(&area, "M%s,%d", Coord(first), plotBase)
		for _, pt := range run {
			fmt.Fprintf(&area, " %s,%s", Coord(x(pt.At)), Coord(plotY(pt.V, top)))
		}
		fmt.Fprintf(&area, " %s,%dZ", Coord(end), plotBase)
		run = run[:0]
	}
	for _, pt := range points {
		if pt.V < 0 || pt.At.Before(from) || pt.At.After(to) {
			continue
		}
		if pt.At.Sub(last) > hole {
			draw()
			p.Gaps = append(p.Gaps, [2]float64{x(last), x(pt.At)})
		}
		run, last = append(run, pt), pt.At
	}
	draw()
	if to.Sub(last) > hole {
		p.Gaps = append(p.Gaps, [2]float64{x(last), PlotWidth})
	}
	p.Line, p.Area = line.String(), area.String()
	return p
}

// SlowSpans returns the spans of samples that are slowed down, with what slowed them down, joined where they are at
// most hole apart. why returns "" for a sample at full speed. Spans with different reasons are separate.
func SlowSpans(at []time.Time, why func(i int) string, from, to time.Time, hole time.Duration) (out []Tip) {
	span := to.Sub(from).Seconds()
	if span <= 0 {
		return nil
	}
	x := func(t time.Time) float64 { return min(max(PlotWidth*t.Sub(from).Seconds()/span, 0), PlotWidth) }
	for i := 0; i < len(at); {
		text, first := why(i), i
		for i++; i < len(at) && why(i) == text && at[i].Sub(at[i-1]) <= hole; i++ {
		}
		end := at[i-1]
		if i < len(at) && at[i].Sub(end) <= hole {
			end = at[i]
		}
		if text == "" || end.Before(from) || at[first].After(to) {
			continue
		}
		left := x(at[first])
		out = append(out, Tip{X: Coord(left), Width: Coord(max(x(end)-left, 1)),
			Text: Clock(at[first], to) + " to " + Clock(end, to) + " UTC: " + text})
	}
	return out
}

// Tip is a part of a plot with its value, to hover over.
type Tip struct{ X, Width, Text string }

// Tips divides a plot into n parts and returns those that have readings, each with the mean of its readings.
func Tips(points []Point, from, to time.Time, n int, format func(float64) string) (out []Tip) {
	width := to.Sub(from) / time.Duration(n)
	if width <= 0 {
		return nil
	}
	for i := range n {
		begin := from.Add(time.Duration(i) * width)
		sum, count := 0.0, 0
		for _, p := range points {
			if p.V >= 0 && !p.At.Before(begin) && p.At.Before(begin.Add(width)) {
				sum, count = sum+p.V, count+1
			}
		}
		if count == 0 {
			continue
		}
		out = append(out, Tip{
			X:     Coord(PlotWidth * float64(i) / float64(n)),
			Width: Coord(PlotWidth / float64(n)),
			Text:  Clock(begin, to) + " UTC: " + format(sum/float64(count)),
		})
	}
	return out
}

func plotY(v, top float64) float64 { return plotBase - (plotBase-plotTop)*min(v/top, 1) }

func Coord(f float64) string { return fmt.Sprintf("%.1f", f) }
