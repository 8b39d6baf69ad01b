package admin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

func adminPromo(s *base.Session) *cobra.Command {
	cmd := base.Noun("promo", "Codes that give credit away", promoList(s), promoCreate(s), promoDisable(s), promoUses(s))
	cmd.Example = "  muster admin promo create WELCOME-2027 5.00 --uses 100 --reason 'the spring fair'\n  muster admin " +
		"promo list\n  muster admin promo disable WELCOME-2027 --reason 'it was posted in public'\n  muster admin promo " +
		"uses WELCOME-2027"
	return cmd
}

func promoList(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List promo codes, newest first, and how often each was redeemed", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.Client(cmd).Admin.ListPromoCodes(cmd.Context())
			return s.Result(cmd, page, err, func(p *base.Printer) { printPromos(p, page.Items) })
		},
	}
}

func printPromos(p *base.Printer, all []client.PromoCode) {
	rows := make([][]string, len(all))
	for i, c := range all {
		ends := "never"
		if c.ExpiresAt != nil {
			ends = base.When(*c.ExpiresAt)
		}
		given := c.Amount * money.Nano(c.Uses)
		rows[i] = []string{c.Code, base.Nano(c.Amount) + " " + c.Currency, fmt.Sprintf("%d of %d", c.Uses, c.MaxUses),
			base.Nano(given) + " " + c.Currency, base.When(c.CreatedAt), ends}
	}
	p.List("promotion codes", []string{"CODE", ">CREDIT", ">USED", ">GIVEN", "MADE", "ENDS"}, rows)
}

func promoCreate(s *base.Session) *cobra.Command {
	var uses int
	var reason string
	cmd := &cobra.Command{
		Use:   "create CODE AMOUNT",
		Short: "Create a promo code, which each organisation can redeem once",
		Args:  base.Exactly("CODE", "AMOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := money.ParseNano(args[1]); err != nil {
				return fault.New(fault.Invalid, "AMOUNT: %s", err)
			}
			if err := wantReason(reason); err != nil {
				return err
			}
			made, err := s.Client(cmd).Admin.CreatePromoCode(cmd.Context(), client.CreatePromoCodeRequest{
				Code:    args[0],
				Amount:  args[1],
				MaxUses: uses,
				Reason:  reason,
			})
			return s.Result(cmd, made, err, func(p *base.Printer) { printPromos(p, []client.PromoCode{made}) })
		},
	}
	cmd.Flags().IntVar(&uses, "uses", 1, "organisations that may use it")
	reasonFlag(cmd, &reason, "the audit trail keeps it")
	return cmd
}

func promoDisable(s *base.Session) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "disable CODE", Short: "Disable a promo code; credit that it gave stays", Args: base.Exactly("CODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := wantReason(reason); err != nil {
				return err
			}
			ended, err := s.Client(cmd).Admin.DisablePromoCode(cmd.Context(), args[0],
				client.DisablePromoCodeRequest{Reason: reason})
			return s.Result(cmd, ended, err, func(p *base.Printer) {
				p.Line("%s is over. It was used %s.", ended.Code,
					base.Counted(ended.Uses, "time"))
			})
		},
	}
	reasonFlag(cmd, &reason, "the audit trail keeps it")
	return cmd
}

func promoUses(s *base.Session) *cobra.Command {
	var org string
	var page base.PageFlags
	cmd := &cobra.Command{
		Use: "uses [CODE]", Short: "List redemptions of a promo code or of all, newest first", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			by, err := orgFlag(org)
			if err != nil {
				return err
			}
			all, err := s.Client(cmd).Admin.ListRedemptions(cmd.Context(), client.RedemptionsQuery{PageOf: page.Of(),
				Code: strings.Join(args, ""), Org: by.String()})
			return s.Result(cmd, all, err, func(p *base.Printer) {
				rows := make([][]string, len(all.Items))
				for i, r := range all.Items {
					rows[i] = []string{base.When(r.At), r.Code, base.Nano(r.Amount) + " " + r.Currency, r.OrgName, r.Org.String()}
				}
				p.List("redemptions", []string{"TIME", "CODE", ">CREDIT", "ORGANISATION", "ID"}, rows)
				base.PrintNext(p, all.Next)
			})
		},
	}
	page.Flags(cmd, "uses")
	cmd.Flags().StringVar(&org, "org", "", "by this organisation alone (its id)")
	return cmd
}
