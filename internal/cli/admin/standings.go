package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func adminStandings(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "standings", Short: "List organisations with open disputes or a suspension", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.Client(cmd).Admin.ListStandings(cmd.Context())
			return s.Result(cmd, page, err, func(p *base.Printer) {
				rows := make([][]string, len(page.Items))
				for i, x := range page.Items {
					rows[i] = []string{x.Org.String(), x.Name, string(x.State), fmt.Sprint(x.Open), fmt.Sprint(x.Lost),
						base.Nano(x.Debt), base.When(x.Changed)}
				}
				p.List("organisations with disputes",
					[]string{"ORGANISATION", "NAME", "STANDING", ">OPEN", ">LOST", ">TO REPAY", "SINCE"}, rows)
			})
		},
	}
}

func adminForgive(s *base.Session) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "forgive ORG",
		Example: "  muster admin forgive org_… --reason 'the bank took the disputes back'",
		Short:   "Stop counting an organisation's lost disputes towards a suspension",
		Args:    base.Exactly("ORG"),
		Long: "End the suspension of an organisation that has lost several disputes. What the disputes cost is still " +
			"repaid from its credit, and " +
			"their cards stay blocked.",
		RunE: func(cmd *cobra.Command, args []string) error {
			org, err := id.Parse[id.Org](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "ORG: want the id of an organisation; see muster admin standings")
			}
			if reason == "" {
				return fault.New(fault.Invalid, "--reason is missing: the audit trail keeps it")
			}
			v, err := s.Client(cmd).Admin.ForgiveDisputes(cmd.Context(), org, client.ForgiveDisputesRequest{Reason: reason})
			return s.Result(cmd, v, err, func(p *base.Printer) { p.Line("Forgiven.") })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; the audit trail keeps it")
	return cmd
}
