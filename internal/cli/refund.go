package cli

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

func billingRefund(s *shell) *cobra.Command {
	return &cobra.Command{
		Use:     "refund [AMOUNT]",
		Short:   "Refund unused balance to the cards that paid it; without AMOUNT, list refunds and what can be refunded",
		Example: "  muster billing refund 12.50",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.client(cmd)
			if len(args) == 0 {
				r, err := c.Refunds(cmd.Context())
				return s.result(cmd, r, err, func(p *printer) {
					p.line("%s can be given back.", nano(r.Refundable))
					printRefunds(p, r.Items)
				})
			}
			amount, err := money.ParseNano(args[0])
			if err != nil {
				return fault.New(fault.Invalid, "AMOUNT: %s", err)
			}
			page, err := c.GiveBack(cmd.Context(), amount)
			return s.result(cmd, page, err, func(p *printer) { printRefunds(p, page.Items) })
		},
	}
}

func printRefunds(p *printer, list []client.Refund) {
	rows := make([][]string, len(list))
	for i, r := range list {
		rows[i] = []string{when(r.CreatedAt), r.TopUpID.String(), nano(r.Amount), nano(r.Tax), r.State, r.Failure}
	}
	p.table([]string{"WHEN", "OF THE PAYMENT", ">AMOUNT", ">TAX", "STATE", "WHY"}, rows)
}

func billingRedeem(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "redeem CODE", Short: "Redeem a promo code", Args: exactly("CODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := s.client(cmd).Redeem(cmd.Context(), args[0])
			return s.result(cmd, r, err, func(p *printer) { p.line("%s were added.", nano(r.Amount)) })
		},
	}
}
