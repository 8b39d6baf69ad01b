package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
)

func payoutCommand(s *shell) *cobra.Command {
	return noun("payout", "How your hosts' earnings reach your bank", payoutShow(s), payoutList(s), payoutSetup(s))
}

func payoutShow(s *shell) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show what is earned, payable and paid, and what is missing before you can be paid",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := s.client(cmd)
			b, err := c.PayoutBalance(cmd.Context())
			if err != nil {
				return err
			}
			a, err := c.PayoutAccount(cmd.Context())
			if err != nil {
				return err
			}
			both := struct {
				Balance client.PayoutBalance `json:"balance"`
				Account client.PayoutAccount `json:"account"`
			}{b, a}
			return s.show(cmd, both, func(p *printer) {
				in := " " + b.Currency
				p.facts("Pending", nano(b.Pending)+in+", for "+seconds(b.Holdback)+" after it was booked", "Not booked",
					nano(b.NotYet)+in+", measured on leases that run; booked every quarter of an hour", "Payable", nano(b.Payable)+in,
					"On its way", nano(b.Sending)+in, "Paid", nano(b.Paid)+in, "Next payout", orDash(whenPtr(b.NextAt))+
						", of at least "+nano(b.Minimum)+in)
				if b.InReview > 0 {
					p.line("%s%s more is in review: the renters are linked with you.", nano(b.InReview), in)
				}
				if b.Disputed > 0 {
					p.line("%s%s of it waits: the payments behind it are disputed.", nano(b.Disputed), in)
				}
				if len(b.Frozen) > 0 {
					p.line("Nothing becomes payable before somebody looks at %s with two accounts of the same time.",
						counted(len(b.Frozen), "lease"))
				}
				printPayoutAccount(p, a)
			})
		},
	}
}

func printPayoutAccount(p *printer, a client.PayoutAccount) {
	switch a.State {
	case "none":
		p.line("You have no payout account: muster payout setup --country DE")
	case "making":
		p.line("Your payout account is being made.")
	case "refused":
		p.line("%s Try again: muster payout setup --country DE", a.Failure)
	case "incomplete":
		p.line("Before you can be paid, Stripe wants to know: %s. Tell it: muster payout setup", strings.Join(a.Due, ", "))
	case "checking":
		p.line("Stripe is checking what you told it.")
	case "disabled":
		p.line("Stripe has switched your payout account off (%s): muster payout setup", a.Disabled)
	}
	if a.Stopped != "" {
		p.line("Payouts to you are stopped: %s", a.Stopped)
	}
}

func payoutList(s *shell) *cobra.Command {
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List your payouts, newest first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.client(cmd).Payouts(cmd.Context(), client.PageOf{Limit: limit, After: after})
			return s.result(cmd, page, err, func(p *printer) {
				rows := make([][]string, len(page.Items))
				for i, x := range page.Items {
					rows[i] = []string{when(x.CreatedAt), x.ID.String(), nano(x.Amount), x.State,
						firstOf(x.Failure, takenBack(x), x.Transfer)}
				}
				p.table([]string{"WHEN", "ID", ">AMOUNT", "STATE", "TRANSFER, OR WHY NOT"}, rows)
				if page.Next != nil {
					p.line("More: --after %s", *page.Next)
				}
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "payouts at most")
	cmd.Flags().StringVar(&after, "after", "", "next of the page before")
	return cmd
}

// takenBack is what came back of a payout, what was asked for, and what Stripe says to it; "" = nothing of all that.
func takenBack(x client.Payout) string {
	var said []string
	if x.Reversed > 0 {
		said = append(said, nano(x.Reversed)+" taken back")
	}
	if r := x.Reversal; r != nil && r.State == "refused" {
		said = append(said, "Stripe refused to take "+nano(r.Amount)+" back: "+r.Failure)
	} else if r != nil {
		said = append(said, nano(r.Amount)+" being taken back")
	}
	return strings.Join(said, "; ")
}

func payoutSetup(s *shell) *cobra.Command {
	var country string
	cmd := &cobra.Command{
		Use: "setup", Short: "Open Stripe's page where you enter your identity and bank account",
		Example: "  muster payout setup --country DE", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			x, err := s.client(cmd).SetUpPayouts(cmd.Context(), strings.ToUpper(strings.TrimSpace(country)))
			return s.result(cmd, x, err, func(p *printer) {
				p.line("Open this page now, it is good for one visit: %s", x.URL)
			})
		},
	}
	cmd.Flags().StringVar(&country, "country", "",
		"where you are paid, two letters; only needed the first time, and final")
	return cmd
}
