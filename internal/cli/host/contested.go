package host

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/cli/base"
)

func hostContested(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "contested",
		Short: "List GPUs of your hosts that another operator lists, too",
		Long: "List GPUs of your hosts that hosts of another operator list, too. Only an incumbent, a GPU that was listed " +
			"here first and rented, or that the platform awarded to you, is offered until the platform has decided.",
		Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.Client(cmd).Hosts.ListContestedGPUs(cmd.Context())
			gpus := all.Items
			return s.Result(cmd, gpus, err, func(p *base.Printer) {
				rows := make([][]string, len(gpus))
				for i, g := range gpus {
					offered := "no"
					if g.Offered {
						offered = "yes"
					}
					rows[i] = []string{g.UUID, g.Model, g.Contest, offered, g.Host.String(), g.HostName, base.When(g.ListedAt)}
				}
				p.List("contested GPUs", []string{"GPU", "MODEL", "STATUS", "OFFERED", "HOST", "NAME", "LISTED"}, rows)
			})
		},
	}
}
