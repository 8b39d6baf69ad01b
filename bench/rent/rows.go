package rent

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/bench/table"
)

// Rows measures gangs and single GPUs.
func Rows(ctx context.Context, base string) ([]table.Row, error) {
	gang := Default()
	single := gang
	single.Nodes, single.GPUs, single.Hosts = 1, 1, 500
	var out []table.Row
	for _, c := range []Config{gang, single} {
		r, err := Measure(ctx, base, c)
		if err != nil {
			return nil, fmt.Errorf("%d × %d GPUs: %w", c.Nodes, c.GPUs, err)
		}
		out = append(out, rows(c, r)...)
	}
	return out, nil
}

func rows(c Config, r Result) []table.Row {
	name := fmt.Sprintf("rents of %d × %d GPUs, %d at a time", c.Nodes, c.GPUs, c.Clients)
	speed := func(runs []platform.Run) float64 {
		return median(runs, func(r platform.Run) float64 { return r.PerSecond })
	}
	p99 := func(runs []platform.Run) float64 {
		return median(runs, func(r platform.Run) float64 { return float64(r.P99) / float64(time.Millisecond) })
	}
	ours, bare, floor := speed(r.Ours), speed(r.Bare), speed(r.Pipelined)
	busy, calm := p99(r.Ours), p99(r.OursPaced)
	return []table.Row{
		{
			Goal:         1,
			Name:         name,
			Unit:         "/s",
			Ours:         ours,
			Baseline:     bare,
			BaselineName: "same rows and locks, bare",
			Ratio:        ours / bare,
			Want:         "≥ 0.5",
			Met:          ours >= bare/2,
			Details:      r,
		},
		{
			Goal:         1,
			Name:         name,
			Unit:         "/s",
			Ours:         ours,
			Baseline:     floor,
			BaselineName: "the same in one round trip",
			Ratio:        ours / floor,
		},
		{
			Goal:         1,
			Name:         name + ", p99",
			Unit:         "ms",
			Ours:         busy,
			Baseline:     p99(r.Bare),
			BaselineName: "bare",
			Ratio:        busy / p99(r.Bare),
			Want:         "≤ 25 ms",
			Met:          busy <= 25,
		},
		{
			Goal:         1,
			Name:         name + ", p99 at half that rate",
			Unit:         "ms",
			Ours:         calm,
			Baseline:     p99(r.BarePaced),
			BaselineName: "bare, same rate",
			Ratio:        calm / p99(r.BarePaced),
			Want:         "≤ 25 ms",
			Met:          calm <= 25,
		},
	}
}

func median(runs []platform.Run, of func(platform.Run) float64) float64 {
	v := make([]float64, len(runs))
	for i, r := range runs {
		v[i] = of(r)
	}
	return table.Median(v)
}
