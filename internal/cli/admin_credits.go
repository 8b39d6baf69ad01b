package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func adminHeldCredits(s *shell) *cobra.Command {
	return &cobra.Command{
		Use:   "held-credits",
		Short: "List credits for a host's failure that wait for an admin, because the renter could have caused it",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.client(cmd).HeldCredits(cmd.Context())
			return s.result(cmd, page, err, func(p *printer) {
				for _, h := range page.Items {
					p.facts("Lease", h.Lease.String(), "Cluster", fmt.Sprintf("%s, rank %d", h.Cluster, h.Rank), "Host",
						h.HostName+" "+h.Host.String(),
						"Renter", h.Renter.String(), "Operator", h.Operator.String(), "Reason", h.Reason, "Amount", nano(h.Amount)+" "+
							h.Currency,
						"Already credited", nano(h.Booked)+" "+h.Currency, "Failed at", when(h.At))
					p.line("")
				}
				p.line("Held: %s.", counted(len(page.Items), "credit"))
			})
		},
	}
}

func adminDecideCredit(s *shell) *cobra.Command {
	var reason string
	var refuse bool
	cmd := &cobra.Command{
		Use: "decide-credit LEASE", Short: "Approve or refuse (--refuse) the held credit of a lease", Args: exactly("LEASE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := id.Parse[id.Lease](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "LEASE: want the id of a lease; see muster admin held-credits")
			}
			if reason == "" {
				return fault.New(fault.Invalid, "--reason is missing: the audit trail keeps it")
			}
			if err := s.client(cmd).DecideCredit(cmd.Context(), l, !refuse, reason); err != nil {
				return err
			}
			return s.show(cmd, map[string]any{"lease_id": l.String(), "approved": !refuse}, func(p *printer) {
				if refuse {
					p.line("The credit of %s is refused.", l)
				} else {
					p.line("The credit of %s is booked.", l)
				}
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; the audit trail keeps it")
	cmd.Flags().BoolVar(&refuse, "refuse", false, "refuse it for good")
	return cmd
}
