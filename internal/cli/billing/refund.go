package billing

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

func billingRefund(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:     "refund [AMOUNT]",
		Short:   "Refund unused balance to the cards that paid it; without AMOUNT, list refunds and what can be refunded",
		Example: "  muster billing refund 12.50",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			if len(args) == 0 {
				r, err := c.Billing.ListRefunds(cmd.Context())
				return s.Result(cmd, r, err, func(p *base.Printer) {
					p.Line("%s can be given back.", base.Nano(r.Refundable))
					printRefunds(p, r.Items)
				})
			}
			amount, err := money.ParseNano(args[0])
			if err != nil {
				return fault.New(fault.Invalid, "AMOUNT: %s", err)
			}
			page, err := c.Billing.CreateRefund(cmd.Context(), client.CreateRefundRequest{Amount: amount.String()})
			return s.Result(cmd, page, err, func(p *base.Printer) { printRefunds(p, page.Items) })
		},
	}
}

func printRefunds(p *base.Printer, list []client.Refund) {
	rows := make([][]string, len(list))
	for i, r := range list {
		rows[i] = []string{base.When(r.CreatedAt), r.TopUp.String(), base.Nano(r.Amount), base.Nano(r.Tax), string(r.State),
			r.Failure}
	}
	p.List("refunds", []string{"WHEN", "OF THE PAYMENT", ">AMOUNT", ">TAX", "STATE", "WHY"}, rows)
}

func billingRedeem(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "redeem CODE", Short: "Redeem a promo code", Args: base.Exactly("CODE"),
		Example: "  muster billing redeem WELCOME-2026",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := s.Client(cmd).Billing.RedeemCode(cmd.Context(), client.RedeemCodeRequest{Code: args[0]})
			return s.Result(cmd, r, err, func(p *base.Printer) { p.Line("%s were added.", base.Nano(r.Amount)) })
		},
	}
}
