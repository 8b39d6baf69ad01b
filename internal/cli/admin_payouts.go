package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func adminPayouts(s *shell) *cobra.Command {
	cmd := noun("payouts", "Everybody's payouts", payoutsList(s), payoutsDue(s), payoutsPay(s), payoutsRun(s),
		payoutsReverse(s))
	cmd.Example = "  muster admin payouts due\n  muster admin payouts pay org_… --reason 'their bank is mended'\n  " +
		"muster admin payouts list --org org_…\n  muster admin payouts reverse payout_… --amount 25.00 --reason 'sent twice'"
	return cmd
}

func payoutsList(s *shell) *cobra.Command {
	var page pageFlags
	var org string
	cmd := &cobra.Command{
		Use: "list", Short: "List payouts, newest first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, err := orgFlag(org)
			if err != nil {
				return err
			}
			all, err := s.client(cmd).AllPayouts(cmd.Context(), to, page.of())
			return s.result(cmd, all, err, func(p *printer) { printPayoutsOf(p, all) })
		},
	}
	page.flags(cmd, "payouts")
	cmd.Flags().StringVar(&org, "org", "", "to this operator alone (its id)")
	return cmd
}

func printPayoutsOf(p *printer, all client.Page[client.OperatorPayout]) {
	rows := make([][]string, len(all.Items))
	for i, x := range all.Items {
		rows[i] = []string{when(x.CreatedAt), nano(x.Amount) + " " + x.Currency, x.State,
			firstOf(x.Failure, takenBack(x.Payout)), x.Org.String(), x.ID.String()}
	}
	p.table([]string{"TIME", ">AMOUNT", "STATE", "WHY", "OPERATOR", "ID"}, rows)
	printNext(p, all.Next)
}

func payoutsDue(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "due", Short: "Show what the next payouts would be, and what failed and why", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			run, err := s.client(cmd).PayoutRun(cmd.Context())
			return s.result(cmd, run, err, func(p *printer) {
				rows := make([][]string, len(run.Items))
				for i, n := range run.Items {
					why := n.Why
					if n.Failures > 0 {
						why = fmt.Sprintf("failed %s: %s %s", counted(n.Failures, "time"), n.Failure, why)
					}
					rows[i] = []string{n.OrgName, nano(n.Payable), nano(n.Amount), whenPtr(n.NextAt), why, n.Org.String()}
				}
				p.table([]string{"OPERATOR", ">PAYABLE", ">WOULD BE PAID", "NEXT", "WHY NOT", "ID"}, rows)
			})
		},
	}
}

func payoutsPay(s *shell) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "pay ORG", Short: "Pay an operator now, outside the schedule", Args: exactly("ORG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			org, err := orgArg(args[0])
			if err != nil {
				return err
			}
			if err := wantReason(reason); err != nil {
				return err
			}
			x, err := s.client(cmd).PayNow(cmd.Context(), org, reason)
			return s.result(cmd, x, err, func(p *printer) { p.line("%s %s are on their way: %s", nano(x.Amount), x.Currency, x.ID) })
		},
	}
	reasonFlag(cmd, &reason, "the audit trail keeps it")
	return cmd
}

func payoutsRun(s *shell) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "run", Short: "Pay every operator who can be paid now, outside the schedule", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := wantReason(reason); err != nil {
				return err
			}
			made, err := s.client(cmd).RunPayouts(cmd.Context(), reason)
			return s.result(cmd, made, err, func(p *printer) {
				printPayoutsOf(p, made)
				p.line("%d payouts were made.", len(made.Items))
			})
		},
	}
	reasonFlag(cmd, &reason, "the audit trail keeps it")
	return cmd
}

func payoutsReverse(s *shell) *cobra.Command {
	var amount, reason string
	cmd := &cobra.Command{
		Use:   "reverse PAYOUT",
		Short: "Reverse a payout, in part or whole, or retry a refused reversal; payouts to the operator stop",
		Args:  exactly("PAYOUT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			what, err := id.Parse[id.Payout](args[0])
			if err != nil || what.IsZero() {
				return fault.New(fault.Invalid, "want the id of a payout, not %q; see muster admin payouts list", args[0])
			}
			if err := wantReason(reason); err != nil {
				return err
			}
			var n money.Nano
			if amount != "" {
				if n, err = money.ParseNano(amount); err != nil || n <= 0 {
					return fault.New(fault.Invalid, "--amount is a decimal above zero, not %q", amount)
				}
			}
			x, err := s.client(cmd).ReversePayout(cmd.Context(), what, n, reason)
			return s.result(cmd, x, err, func(p *printer) {
				p.line("Stripe is asked to take it back, and payouts to %s are stopped. What becomes of it: muster admin "+
					"payouts list --org %s", x.Org, x.Org)
			})
		},
	}
	cmd.Flags().StringVar(&amount, "amount", "", "in whole cents; left out: all that is left of it")
	reasonFlag(cmd, &reason, "the operator reads it")
	return cmd
}
