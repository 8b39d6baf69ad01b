package cluster

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
)

// EstimateCommand is muster estimate.
func EstimateCommand(s *base.Session) *cobra.Command {
	var r client.EstimateQuery
	cmd := &cobra.Command{
		Use:   "estimate",
		Short: "Get the price that a cluster would have now; nothing is claimed",
		Long: `Get the price that a cluster would have now. It needs no account and claims nothing: others may rent
the GPUs before you do. To claim them, ask for a quote.`,
		Example: `  muster estimate --nodes 2 --gpus 4 --gpu h100
  muster estimate --gpus 8 --gpu 'vram_gb>=80'`,
		Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.Visitor(cmd)
			if err != nil {
				return err
			}
			e, err := c.Offers.GetEstimate(cmd.Context(), r)
			return s.Result(cmd, e, err, func(p *base.Printer) { printEstimate(p, e) })
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&r.Nodes, "nodes", 0, "nodes (default 1)")
	fs.IntVar(&r.GPUsPerNode, "gpus", 0, "GPUs per node (default 1)")
	fs.StringVar(&r.GPU, "gpu", "", "offer query every node must match, such as 'gpu_model=H100 vram_gb>=80'")
	base.Gigabytes(fs, &r.DiskGB, "disk", 0, "disk space per node (default 10)")
	fs.StringVar(&r.Scope, "scope", "", "any, fabric or host: how far apart the nodes may be")
	fs.Float64Var(&r.MinGbps, "min-gbps", 0, "least all-reduce bandwidth between nodes")
	_ = cmd.RegisterFlagCompletionFunc("gpu", base.QueryTerms)
	_ = cmd.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions([]string{"any", "fabric", "host"},
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func printEstimate(p *base.Printer, e client.Estimate) {
	p.Line("About %s %s per hour all-in (%s per second). Nothing is held for it.", base.Micro(e.PricePerHour), e.Currency,
		e.PricePerSecond)
	rows := make([][]string, len(e.Nodes))
	for i, n := range e.Nodes {
		rows[i] = []string{
			fmt.Sprint(n.Rank), n.GPUModel, fmt.Sprint(n.GPUs), base.Micro(n.PricePerGPUHour), base.Micro(n.PricePerHour),
		}
	}
	p.Table([]string{">RANK", "MODEL", ">GPUS", ">PER GPU-HOUR", ">PER HOUR"}, rows)
}
