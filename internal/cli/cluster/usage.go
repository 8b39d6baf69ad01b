package cluster

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/id"
)

func clusterUsage(s *base.Session) *cobra.Command {
	return onCluster(s, "usage", "Show what a cluster used and what it costs, segment by segment",
		func(cmd *cobra.Command, c *client.Client, cl id.Cluster) error {
			u, err := c.Clusters.GetUsage(cmd.Context(), cl)
			if err != nil || s.ForPrograms() {
				return s.Result(cmd, u, err, nil)
			}
			v, err := c.Clusters.Get(cmd.Context(), cl)
			return s.Result(cmd, u, err, func(p *base.Printer) { printUsage(p, u, v) })
		})
}

// printUsage prints the segments that hosts have signed, and for a cluster that is not settled what it costs with the
// time that they have not signed yet.
func printUsage(p *base.Printer, u client.Usage, v client.Cluster) {
	rows := make([][]string, len(u.Segments))
	for i, l := range u.Segments {
		rows[i] = []string{fmt.Sprint(l.Rank), base.When(l.From), base.When(l.To), l.Seconds.String(), fmt.Sprint(l.GPUs),
			base.Micro(l.PricePerHour), l.Cost.String()}
	}
	p.TableOr("No segment is signed yet.",
		[]string{">RANK", "FROM", "TO", ">SECONDS", ">GPUS", ">PER HOUR", ">COST"}, rows)
	for _, x := range u.Credits {
		p.Line("Credited: %s %s for rank %d on %s (%s). Its time from %s to %s is free.", x.Amount, u.Currency, x.Rank,
			x.HostName, x.Reason, base.When(x.From), base.When(x.To))
	}
	for _, x := range u.NotBilled {
		p.Line("Not billed: %s s from %s: %s.", x.Seconds, base.When(x.From), x.Why)
	}
	signed := "Signed by the hosts so far"
	if u.Settled {
		signed = "Final"
	}
	p.Line("%s: %s %s for %s billable seconds, %s GPU-seconds, %s Wh", signed, u.Cost, u.Currency, u.BillableSeconds,
		u.GPUSeconds, u.EnergyWh)
	if !u.Settled {
		p.Line("With time that is not signed yet: %s %s for %s billable seconds", base.Cost(v.CostSoFar), v.Currency,
			v.BillableSeconds)
	}
}
