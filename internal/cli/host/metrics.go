package host

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/id"
)

func hostMetrics(s *base.Session) *cobra.Command {
	var last, step time.Duration
	cmd := onHost(s, "metrics", "Show what a host's GPUs do, and what slows them down",
		func(cmd *cobra.Command, c *client.Client, h id.Host) error {
			m, err := c.Hosts.GetMetrics(cmd.Context(), h, client.MetricsQuery{From: time.Now().Add(-last),
				Step: int(step.Seconds())})
			return s.Result(cmd, m, err, func(p *base.Printer) { printHostMetrics(p, m) })
		})
	cmd.Long = "Show the newest reading of each GPU within a time. With -o json or yaml, all readings are printed."
	base.Readings(cmd.Flags(), &last, &step)
	return cmd
}

// printHostMetrics prints the newest reading of each GPU.
func printHostMetrics(p *base.Printer, m client.HostMetrics) {
	var rows [][]string
	for _, g := range m.GPUs {
		n := len(g.Samples)
		if n == 0 {
			continue
		}
		x := g.Samples[n-1]
		fan := (*int)(nil)
		if x.Speed != nil {
			fan = x.Speed.FanPercent
		}
		rows = append(rows, []string{fmt.Sprint(g.Index), base.When(x.At), base.Whole(x.Util, "%"),
			base.Whole(x.MemMB, "MiB"), base.Whole(x.PowerW, "W"), base.Whole(x.TempC, "°C"), base.Whole(fan, "%"),
			base.Clock(x.Speed), base.Limits(x.Speed)})
	}
	p.TableOr("No reading of a GPU in this time.", []string{">GPU", "AT", ">UTIL", ">MEMORY", ">POWER", ">TEMP", "+>FAN",
		">CLOCK", "SLOWED BY"}, rows)
}
