package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func adminHeldCredits(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "held-credits",
		Short: "List credits for a host's failure that wait for an admin, because the renter could have caused it",
		Args:  base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.Client(cmd).Admin.ListHeldCredits(cmd.Context())
			return s.Result(cmd, page, err, func(p *base.Printer) {
				for _, h := range page.Items {
					p.Facts("Lease", h.Lease.String(), "Cluster", fmt.Sprintf("%s, rank %d", h.Cluster, h.Rank), "Host",
						h.HostName+" "+h.Host.String(),
						"Renter", h.Renter.String(), "Operator", h.Operator.String(), "Reason", h.Reason, "Amount", base.Nano(h.Amount)+
							" "+
							h.Currency,
						"Already credited", base.Nano(h.Booked)+" "+h.Currency, "Failed at", base.When(h.At))
					p.Line("")
				}
				p.Line("Held: %s.", base.Counted(len(page.Items), "credit"))
			})
		},
	}
}

func adminDecideCredit(s *base.Session) *cobra.Command {
	var reason string
	var refuse bool
	cmd := &cobra.Command{
		Use: "decide-credit LEASE",
		Example: "  muster admin decide-credit ls_… --reason 'the host lost power'\n" +
			"  muster admin decide-credit ls_… --refuse --reason 'the renter filled the disk'",
		Short: "Approve or refuse (--refuse) the held credit of a lease",
		Args:  base.Exactly("LEASE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := id.Parse[id.Lease](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "LEASE: want the id of a lease; see muster admin held-credits")
			}
			if reason == "" {
				return fault.New(fault.Invalid, "--reason is missing: the audit trail keeps it")
			}
			v, err := s.Client(cmd).Admin.DecideHeldCredit(cmd.Context(), l,
				client.DecideHeldCreditRequest{Approve: !refuse, Reason: reason})
			return s.Result(cmd, v, err, func(p *base.Printer) {
				if refuse {
					p.Line("The credit of %s is refused.", l)
				} else {
					p.Line("The credit of %s is booked.", l)
				}
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; the audit trail keeps it")
	cmd.Flags().BoolVar(&refuse, "refuse", false, "refuse it for good")
	return cmd
}
