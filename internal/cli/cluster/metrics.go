package cluster

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/id"
)

func clusterMetrics(s *base.Session) *cobra.Command {
	var last, step time.Duration
	cmd := onCluster(s, "metrics", "Show what the GPUs, networks and disks of a cluster do",
		func(cmd *cobra.Command, c *client.Client, cl id.Cluster) error {
			m, err := c.Clusters.GetMetrics(cmd.Context(), cl, client.MetricsQuery{From: time.Now().Add(-last),
				Step: int(step.Seconds())})
			return s.Result(cmd, m, err, func(p *base.Printer) { printMetrics(p, m) })
		})
	cmd.Long = "Show the newest readings of a cluster's GPUs and nodes within a time. " +
		"With -o json or yaml, all readings are " +
		"printed:\nrates of nodes are bytes per second since the reading before."
	base.Readings(cmd.Flags(), &last, &step)
	cmd.Example += "\n  muster cluster metrics train --last 6h --step 1m -o json"
	return cmd
}

// printMetrics prints the newest reading of each GPU, and of each rank.
func printMetrics(p *base.Printer, m client.Metrics) {
	var gpus, nodes [][]string
	index := map[int]int{}
	for _, g := range m.GPUs {
		i := index[g.Rank]
		index[g.Rank]++
		if n := len(g.Samples); n > 0 {
			x := g.Samples[n-1]
			gpus = append(gpus, []string{fmt.Sprint(g.Rank), fmt.Sprint(i), g.HostName, base.When(x.At), base.Whole(x.Util, "%"),
				base.Whole(x.MemMB, "MiB"), base.Whole(x.PowerW, "W"), base.Whole(x.TempC, "°C"),
				base.Clock(x.Speed), base.Limits(x.Speed)})
		}
	}
	for _, n := range m.Nodes {
		if k := len(n.Samples); k > 0 {
			x := n.Samples[k-1]
			nodes = append(nodes, []string{fmt.Sprint(n.Rank), n.HostName, base.When(x.At), perSecond(x.NetRx),
				perSecond(x.NetTx), perSecond(x.RanksRx), perSecond(x.RanksTx), perSecond(x.DiskRead), perSecond(x.DiskWrite)})
		}
	}
	p.TableOr("No reading of a GPU in this time.",
		[]string{">RANK", ">GPU", "HOST", "AT", ">UTIL", ">MEMORY", ">POWER", ">TEMP", ">CLOCK", "SLOWED BY"}, gpus)
	p.Line("")
	p.TableOr("No reading of networks and disks in this time.",
		[]string{">RANK", "HOST", "AT", ">NET IN", ">NET OUT", ">RANKS IN", ">RANKS OUT", ">READ", ">WRITTEN"}, nodes)
}

// perSecond formats a rate in bytes with a decimal unit.
func perSecond(v *float64) string {
	if v == nil {
		return base.OrDash("")
	}
	n, unit := *v, 0
	units := []string{"B/s", "kB/s", "MB/s", "GB/s", "TB/s"}
	for n >= 1000 && unit < len(units)-1 {
		n, unit = n/1000, unit+1
	}
	return fmt.Sprintf("%.1f %s", n, units[unit])
}
