package admin

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func adminAllowRefund(s *base.Session) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "allow-refund ORG AMOUNT",
		Example: "  muster admin allow-refund org_… 100 --reason 'they leave'",
		Short:   "Allow an organisation to take back more than the limit on refunds",
		Args:    base.Exactly("ORG", "AMOUNT"),
		Long: "Allow an organisation to take back AMOUNT more of its unused credit, without tax, than the limit on refunds " +
			"(MUSTER_REFUND_LIMIT) leaves within the next 30 days. The organisation then asks for the refund itself.",
		RunE: func(cmd *cobra.Command, args []string) error {
			org, err := id.Parse[id.Org](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "ORG: want the id of an organisation; see muster admin orgs")
			}
			if reason == "" {
				return fault.New(fault.Invalid, "--reason is missing: the audit trail keeps it")
			}
			v, err := s.Client(cmd).Admin.AllowRefund(cmd.Context(), org,
				client.AllowRefundRequest{Amount: args[1], Reason: reason})
			return s.Result(cmd, v, err, func(p *base.Printer) { p.Line("Allowed.") })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; the audit trail keeps it")
	return cmd
}
