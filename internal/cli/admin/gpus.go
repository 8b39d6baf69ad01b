package admin

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func adminContestedGPUs(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "contested-gpus",
		Short: "List GPUs that hosts of several operators list",
		Long: "List GPUs that hosts of several operators list, the first to be listed first.\n\n" +
			"challenger: listed by another operator before; not offered.\n" +
			"holder: listed first, and no one has rented it there; not offered.\n" +
			"incumbent: listed first and rented there before, or awarded; offered.",
		Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.Client(cmd).Admin.ListAllContestedGPUs(cmd.Context())
			gpus := all.Items
			return s.Result(cmd, gpus, err, func(p *base.Printer) {
				rows := make([][]string, len(gpus))
				for i, g := range gpus {
					rows[i] = []string{g.UUID, g.Contest, g.Host.String(), g.HostName, g.Org.String(), g.OrgName,
						base.When(g.ListedAt)}
				}
				p.List("contested GPUs", []string{"GPU", "STATUS", "HOST", "NAME", "OPERATOR", "NAME", "LISTED"}, rows)
			})
		},
	}
}

func adminAwardGPU(s *base.Session) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "award-gpu UUID HOST",
		Example: "  muster admin award-gpu GPU-5a0c1e5e-0d9c-4f4e-8f0e-0a2b3c4d5e6f host_… --reason 'invoice shown'",
		Short:   "Decide which host has a GPU that several list",
		Long: "Decide that a GPU is the one that HOST lists. It is offered; the others that list it are not, and leases " +
			"that run on them go on to their end. The operators read the reason.",
		Args: base.Exactly("UUID", "HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			host, err := id.Parse[id.Host](args[1])
			if err != nil {
				return fault.New(fault.Invalid, "HOST: want the id of a host; see muster admin contested-gpus")
			}
			if reason == "" {
				return fault.New(fault.Invalid, "--reason is missing: the operators read it")
			}
			v, err := s.Client(cmd).Admin.AwardGPU(cmd.Context(), args[0],
				client.AwardGPURequest{Host: host.String(), Reason: reason})
			return s.Result(cmd, v, err, func(p *base.Printer) {
				p.Line("Awarded.")
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; the operators read it")
	return cmd
}
