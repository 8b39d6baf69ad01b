package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/cli/billing"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func adminPayouts(s *base.Session) *cobra.Command {
	cmd := base.Noun("payouts", "Everybody's payouts", payoutsList(s), payoutsDue(s), payoutsPay(s), payoutsRun(s),
		payoutsReverse(s))
	cmd.Example = "  muster admin payouts due\n  muster admin payouts pay org_… --reason 'their bank works again'\n  " +
		"muster admin payouts list --org org_…\n  muster admin payouts reverse payout_… --amount 25.00 --reason 'sent twice'"
	return cmd
}

func payoutsList(s *base.Session) *cobra.Command {
	var page base.PageFlags
	var org string
	cmd := &cobra.Command{
		Use: "list", Short: "List payouts, newest first", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, err := orgFlag(org)
			if err != nil {
				return err
			}
			all, err := s.Client(cmd).Admin.ListAllPayouts(cmd.Context(), client.PayoutsQuery{PageOf: page.Of(),
				Org: to.String()})
			return s.Result(cmd, all, err, func(p *base.Printer) { printPayoutsOf(p, all) })
		},
	}
	page.Flags(cmd, "payouts")
	cmd.Flags().StringVar(&org, "org", "", "to this operator alone (its id)")
	return cmd
}

func printPayoutsOf(p *base.Printer, all client.Page[client.OperatorPayout]) {
	rows := make([][]string, len(all.Items))
	for i, x := range all.Items {
		rows[i] = []string{base.When(x.CreatedAt), base.Nano(x.Amount) + " " + x.Currency, string(x.State),
			base.FirstOf(x.Failure, billing.TakenBack(x.Payout)), x.Org.String(), x.ID.String()}
	}
	p.List("payouts", []string{"TIME", ">AMOUNT", "STATE", "WHY", "OPERATOR", "ID"}, rows)
	base.PrintNext(p, all.Next)
}

func payoutsDue(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "due", Short: "Show what the next payouts would be, and what failed and why", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			run, err := s.Client(cmd).Admin.GetPayoutRun(cmd.Context())
			return s.Result(cmd, run, err, func(p *base.Printer) {
				rows := make([][]string, len(run.Items))
				for i, n := range run.Items {
					why := n.Why
					if n.Failures > 0 {
						why = fmt.Sprintf("failed %s: %s %s", base.Counted(n.Failures, "time"), n.Failure, why)
					}
					rows[i] = []string{n.OrgName, base.Nano(n.Payable), base.Nano(n.Amount), base.WhenPtr(n.NextAt), why,
						n.Org.String()}
				}
				p.List("operators with payable earnings",
					[]string{"OPERATOR", ">PAYABLE", ">WOULD BE PAID", "NEXT", "WHY NOT", "ID"}, rows)
			})
		},
	}
}

func payoutsPay(s *base.Session) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "pay ORG", Short: "Pay an operator now, outside the schedule", Args: base.Exactly("ORG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			org, err := orgArg(args[0])
			if err != nil {
				return err
			}
			if err := wantReason(reason); err != nil {
				return err
			}
			x, err := s.Client(cmd).Admin.PayNow(cmd.Context(), client.PayNowRequest{OrgID: org.String(), Reason: reason})
			return s.Result(cmd, x, err, func(p *base.Printer) {
				p.Line("%s %s are on their way: %s", base.Nano(x.Amount), x.Currency, x.ID)
			})
		},
	}
	reasonFlag(cmd, &reason, "the audit trail keeps it")
	return cmd
}

func payoutsRun(s *base.Session) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "run", Short: "Pay every operator who can be paid now, outside the schedule", Args: base.Exactly(),
		Example: "  muster admin payouts run --reason 'before the holidays'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := wantReason(reason); err != nil {
				return err
			}
			made, err := s.Client(cmd).Admin.RunPayouts(cmd.Context(), client.RunPayoutsRequest{Reason: reason})
			return s.Result(cmd, made, err, func(p *base.Printer) {
				printPayoutsOf(p, made)
				p.Line("%d payouts were made.", len(made.Items))
			})
		},
	}
	reasonFlag(cmd, &reason, "the audit trail keeps it")
	return cmd
}

func payoutsReverse(s *base.Session) *cobra.Command {
	var amount, reason string
	cmd := &cobra.Command{
		Use:   "reverse PAYOUT",
		Short: "Reverse a payout, in part or whole, or retry a refused reversal; payouts to the operator stop",
		Args:  base.Exactly("PAYOUT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			what, err := id.Parse[id.Payout](args[0])
			if err != nil || what.IsZero() {
				return fault.New(fault.Invalid, "want the id of a payout, not %q; see muster admin payouts list", args[0])
			}
			if err := wantReason(reason); err != nil {
				return err
			}
			if amount != "" {
				if n, err := money.ParseNano(amount); err != nil || n <= 0 {
					return fault.New(fault.Invalid, "--amount is a decimal above zero, not %q", amount)
				}
			}
			x, err := s.Client(cmd).Admin.ReversePayout(cmd.Context(), what,
				client.ReversePayoutRequest{Amount: amount, Reason: reason})
			return s.Result(cmd, x, err, func(p *base.Printer) {
				p.Line("Stripe is asked to take it back, and payouts to %s are stopped. What becomes of it: muster admin "+
					"payouts list --org %s", x.Org, x.Org)
			})
		},
	}
	cmd.Flags().StringVar(&amount, "amount", "", "in whole cents; left out: all that is left of it")
	reasonFlag(cmd, &reason, "the operator reads it")
	return cmd
}
