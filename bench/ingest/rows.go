package ingest

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/bench/table"
)

// Rows measures reports as they come when all is well, a segment per lease, and as they come after an outage, full;
// these also as agents send them that do not sign lists.
func Rows(ctx context.Context, base string) ([]table.Row, error) {
	var out []table.Row
	for _, c := range []Config{
		// Leases of five hours, which are booked once an hour, and two hours of reports.
		{Rounds: 5, Hosts: 250, Past: 60, PerLease: 1, Reports: 24, Clients: 64, Batch: 2000},
		{Rounds: 5, Hosts: 250, Past: 20, PerLease: 25, Reports: 2, Clients: 64, Batch: 2000},
		{Rounds: 3, Hosts: 250, Past: 20, PerLease: 25, Reports: 2, Clients: 64, Batch: 2000, Alone: true},
	} {
		r, err := Measure(ctx, base, c)
		if err != nil {
			return nil, fmt.Errorf("%d segments per lease: %w", c.PerLease, err)
		}
		ours, bare := speed(r.Ours), speed(r.Bare)
		name := fmt.Sprintf("segments, reports of %d", c.PerLease*platform.GPUsPerHost)
		if c.Alone {
			out = append(out, table.Row{
				Goal:         5,
				Name:         name + ", each signed alone",
				Unit:         "/s",
				Ours:         ours,
				Baseline:     bare,
				BaselineName: "bare insert",
				Ratio:        ours / bare,
				Details:      r,
			})
			continue
		}
		out = append(out,
			table.Row{
				Goal:         5,
				Name:         name,
				Unit:         "/s",
				Ours:         ours,
				Baseline:     bare,
				BaselineName: "bare insert",
				Ratio:        ours / bare,
				Want:         "≥ 0.5",
				Met:          ours >= bare/2,
				Details:      r,
			},
			table.Row{
				Goal:         5,
				Name:         name,
				Unit:         "/s",
				Ours:         ours,
				Baseline:     r.Verify,
				BaselineName: "signatures alone",
				Ratio:        ours / r.Verify,
			})
	}
	return out, nil
}

func speed(runs []platform.Run) float64 {
	v := make([]float64, len(runs))
	for i, r := range runs {
		v[i] = r.PerSecond
	}
	return table.Median(v)
}
