package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func adminStandings(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "standings", Short: "List organisations with open disputes or a suspension", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.client(cmd).Standings(cmd.Context())
			return s.result(cmd, page, err, func(p *printer) {
				rows := make([][]string, len(page.Items))
				for i, x := range page.Items {
					rows[i] = []string{x.Org.String(), x.Name, x.State, fmt.Sprint(x.Open), fmt.Sprint(x.Lost), nano(x.Debt),
						when(x.Changed)}
				}
				p.table([]string{"ORGANISATION", "NAME", "STANDING", ">OPEN", ">LOST", ">TO REPAY", "SINCE"}, rows)
			})
		},
	}
}

func adminForgive(s *shell) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "forgive ORG",
		Short: "Stop counting an organisation's lost disputes towards a suspension",
		Args:  exactly("ORG"),
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
			if err := s.client(cmd).ForgiveDisputes(cmd.Context(), org, reason); err != nil {
				return err
			}
			return s.show(cmd, map[string]string{"id": args[0]}, func(p *printer) { p.line("Forgiven.") })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; the audit trail keeps it")
	return cmd
}
