package billing

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
)

// PayoutCommand is muster payout.
func PayoutCommand(s *base.Session) *cobra.Command {
	return base.Noun("payout", "How your hosts' earnings reach your bank", payoutShow(s), payoutList(s), payoutSetup(s))
}

func payoutShow(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show what is earned, payable and paid, and what is missing before you can be paid",
		Args:  base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := s.Client(cmd)
			b, err := c.Earnings.GetPayoutBalance(cmd.Context())
			if err != nil {
				return err
			}
			a, err := c.Earnings.GetPayoutAccount(cmd.Context())
			if err != nil {
				return err
			}
			both := struct {
				Balance client.PayoutBalance `json:"balance"`
				Account client.PayoutAccount `json:"account"`
			}{b, a}
			return s.Show(cmd, both, func(p *base.Printer) {
				in := " " + b.Currency
				p.Facts("Pending", base.Nano(b.Pending)+in+", for "+base.Seconds(b.Holdback)+" after it was booked", "Not booked",
					base.Nano(b.NotYet)+in+", measured on leases that run; booked every quarter of an hour", "Payable",
					base.Nano(b.Payable)+in,
					"On its way", base.Nano(b.Sending)+in, "Paid", base.Nano(b.Paid)+in, "Next payout",
					base.OrDash(base.WhenPtr(b.NextAt))+
						", of at least "+base.Nano(b.Minimum)+in)
				if b.InReview > 0 {
					p.Line("%s%s more is in review: the renters are linked with you.", base.Nano(b.InReview), in)
				}
				if b.Disputed > 0 {
					p.Line("%s%s of it waits: the payments behind it are disputed.", base.Nano(b.Disputed), in)
				}
				if len(b.Frozen) > 0 {
					p.Line("Nothing becomes payable until an admin has checked conflicting usage reports of %s.",
						base.Counted(len(b.Frozen), "lease"))
				}
				printPayoutAccount(p, a)
			})
		},
	}
}

func printPayoutAccount(p *base.Printer, a client.PayoutAccount) {
	switch a.State {
	case "none":
		p.Line("You have no payout account: muster payout setup --country DE")
	case "making":
		p.Line("Your payout account is being made.")
	case "refused":
		p.Line("%s Try again: muster payout setup --country DE", a.Failure)
	case "incomplete":
		p.Line("Stripe needs more details before you can be paid: %s. Add them: muster payout setup", strings.Join(a.Due,
			", "))
	case "checking":
		p.Line("Stripe is checking your details.")
	case "disabled":
		p.Line("Stripe has switched your payout account off (%s): muster payout setup", a.Disabled)
	}
	if a.Stopped != "" {
		p.Line("Payouts to you are stopped: %s", a.Stopped)
	}
}

func payoutList(s *base.Session) *cobra.Command {
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List your payouts, newest first", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.Client(cmd).Earnings.ListPayouts(cmd.Context(), client.PageOf{Limit: limit, After: after})
			return s.Result(cmd, page, err, func(p *base.Printer) {
				rows := make([][]string, len(page.Items))
				for i, x := range page.Items {
					rows[i] = []string{base.When(x.CreatedAt), x.ID.String(), base.Nano(x.Amount), string(x.State),
						base.FirstOf(x.Failure, TakenBack(x), x.Transfer)}
				}
				p.List("payouts", []string{"WHEN", "ID", ">AMOUNT", "STATE", "TRANSFER, OR WHY NOT"}, rows)
				base.PrintNext(p, page.Next)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "payouts at most")
	cmd.Flags().StringVar(&after, "after", "", "continue after this item, which the page before named")
	return cmd
}

// TakenBack is what came back of a payout, what was asked for, and what Stripe says to it; "" = nothing of all that.
func TakenBack(x client.Payout) string {
	var said []string
	if x.Reversed > 0 {
		said = append(said, base.Nano(x.Reversed)+" taken back")
	}
	if r := x.Reversal; r != nil && r.State == "refused" {
		said = append(said, "Stripe refused to take "+base.Nano(r.Amount)+" back: "+r.Failure)
	} else if r != nil {
		said = append(said, base.Nano(r.Amount)+" being taken back")
	}
	return strings.Join(said, "; ")
}

func payoutSetup(s *base.Session) *cobra.Command {
	var country string
	cmd := &cobra.Command{
		Use: "setup", Short: "Open Stripe's page where you enter your identity and bank account",
		Example: "  muster payout setup --country DE", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			x, err := s.Client(cmd).Earnings.SetUpPayouts(cmd.Context(),
				client.SetUpPayoutsRequest{Country: strings.ToUpper(strings.TrimSpace(country))})
			return s.Result(cmd, x, err, func(p *base.Printer) {
				p.Line("Open this page now, it is good for one visit: %s", x.URL)
			})
		},
	}
	cmd.Flags().StringVar(&country, "country", "",
		"where you are paid, two letters; only needed the first time, and final")
	return cmd
}
