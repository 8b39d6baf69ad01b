package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

func adminPromo(s *shell) *cobra.Command {
	cmd := noun("promo", "Codes that give credit away", promoList(s), promoCreate(s), promoDisable(s), promoUses(s))
	cmd.Example = "  muster admin promo create WELCOME-2027 5.00 --uses 100 --reason 'the spring fair'\n  muster admin " +
		"promo list\n  muster admin promo disable WELCOME-2027 --reason 'it was posted in public'\n  muster admin promo " +
		"uses WELCOME-2027"
	return cmd
}

func promoList(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List promo codes, newest first, and how often each was redeemed", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.client(cmd).PromoCodes(cmd.Context())
			return s.result(cmd, page, err, func(p *printer) { printPromos(p, page.Items) })
		},
	}
}

func printPromos(p *printer, all []client.PromoCode) {
	rows := make([][]string, len(all))
	for i, c := range all {
		ends := "never"
		if c.ExpiresAt != nil {
			ends = when(*c.ExpiresAt)
		}
		given := c.Amount * money.Nano(c.Uses)
		rows[i] = []string{c.Code, nano(c.Amount) + " " + c.Currency, fmt.Sprintf("%d of %d", c.Uses, c.MaxUses),
			nano(given) + " " + c.Currency, when(c.CreatedAt), ends}
	}
	p.table([]string{"CODE", ">CREDIT", ">USED", ">GIVEN", "MADE", "ENDS"}, rows)
}

func promoCreate(s *shell) *cobra.Command {
	var uses int
	var reason string
	cmd := &cobra.Command{
		Use:   "create CODE AMOUNT",
		Short: "Create a promo code, which each organisation can redeem once",
		Args:  exactly("CODE", "AMOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := money.ParseNano(args[1])
			if err != nil {
				return fault.New(fault.Invalid, "AMOUNT: %s", err)
			}
			if err := wantReason(reason); err != nil {
				return err
			}
			made, err := s.client(cmd).CreatePromoCode(cmd.Context(), client.PromoCode{Code: args[0], Amount: n, MaxUses: uses}, reason)
			return s.result(cmd, made, err, func(p *printer) { printPromos(p, []client.PromoCode{made}) })
		},
	}
	cmd.Flags().IntVar(&uses, "uses", 1, "organisations that may use it")
	reasonFlag(cmd, &reason, "the audit trail keeps it")
	return cmd
}

func promoDisable(s *shell) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "disable CODE", Short: "Disable a promo code; credit that it gave stays", Args: exactly("CODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := wantReason(reason); err != nil {
				return err
			}
			ended, err := s.client(cmd).DisablePromoCode(cmd.Context(), args[0], reason)
			return s.result(cmd, ended, err, func(p *printer) {
				p.line("%s is over. It was used %s.", ended.Code,
					counted(ended.Uses, "time"))
			})
		},
	}
	reasonFlag(cmd, &reason, "the audit trail keeps it")
	return cmd
}

func promoUses(s *shell) *cobra.Command {
	var org string
	var page pageFlags
	cmd := &cobra.Command{
		Use: "uses [CODE]", Short: "List redemptions of a promo code or of all, newest first", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			by, err := orgFlag(org)
			if err != nil {
				return err
			}
			all, err := s.client(cmd).Redemptions(cmd.Context(), strings.Join(args, ""), by, page.of())
			return s.result(cmd, all, err, func(p *printer) {
				rows := make([][]string, len(all.Items))
				for i, r := range all.Items {
					rows[i] = []string{when(r.At), r.Code, nano(r.Amount) + " " + r.Currency, r.OrgName, r.Org.String()}
				}
				p.table([]string{"TIME", "CODE", ">CREDIT", "ORGANISATION", "ID"}, rows)
				printNext(p, all.Next)
			})
		},
	}
	page.flags(cmd, "uses")
	cmd.Flags().StringVar(&org, "org", "", "by this organisation alone (its id)")
	return cmd
}
