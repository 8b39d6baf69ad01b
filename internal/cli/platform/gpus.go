package platform

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/server"
)

// gpusCommand lists GPUs that hosts of several operators list, and records whose they are.
func gpusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gpus",
		Short: "List GPUs that hosts of several operators list",
		Long: `List GPUs that hosts of several operators list, the first to be listed first.

challenger: listed by another operator before; not offered.
holder: listed first, and no one has rented it there; not offered.
incumbent: listed first and rented there before, or awarded; offered.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadServerConfig(cmd)
			if err != nil {
				return err
			}
			gpus, err := server.ContestedGPUs(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			for _, g := range gpus {
				fmt.Fprintf(cmd.OutOrStdout(), "%-44s %-10s %s  %s (%s)  %s (%s)\n", g.UUID, g.Contest,
					g.ListedAt.Format(time.DateOnly), g.Host, g.HostName, g.Org, g.OrgName)
			}
			return nil
		},
	}
	var why string
	award := &cobra.Command{
		Use:     "award UUID HOST",
		Example: "  muster server gpus award GPU-5a0c1e5e-0d9c-4f4e-8f0e-0a2b3c4d5e6f host_… --why 'invoice shown'",
		Short:   "Record whose a GPU is",
		Long: `Record that a GPU is the one that HOST lists. It is offered; the others that list it are not, and leases that
run on them go on to their end. Both operators read the reason.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			host, err := id.Parse[id.Host](args[1])
			if err != nil {
				return err
			}
			cfg, err := loadServerConfig(cmd)
			if err != nil {
				return err
			}
			return server.AwardGPU(cmd.Context(), cfg, args[0], host, why)
		},
	}
	award.Flags().StringVar(&why, "why", "", "the reason, which both operators read")
	cmd.AddCommand(award)
	return cmd
}
