package main

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func billingCommand(s *shell) *cobra.Command {
	return noun("billing", "Balance, credit and the books", billingBalance(s), billingTopUp(s), billingTopUps(s), billingCards(s), billingAuto(s), billingRefund(s), billingRedeem(s), billingTransactions(s), billingVerify(s))
}

func billingBalance(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "balance", Short: "What there is, what is held, and how long it lasts", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.client(cmd)
			if err != nil {
				return err
			}
			b, err := c.Balance(cmd.Context())
			if err != nil {
				return err
			}
			return s.show(cmd, b, func(p *printer) {
				runway := "nothing is being billed"
				if b.RunwaySeconds != nil {
					runway = seconds(*b.RunwaySeconds)
				}
				p.facts("Available", nano(b.Available)+" "+b.Currency, "Held", nano(b.Held)+" for clusters", "Accrued", nano(b.Accrued)+" of what is held",
					"Burning", micro(b.BurnPerHour)+" per hour", "Lasts", runway)
			})
		},
	}
}

func billingTopUp(s *shell) *cobra.Command {
	var card string
	cmd := &cobra.Command{
		Use: "topup AMOUNT", Short: "Add credit", Example: "  muster billing topup 25.00", Args: exactly("AMOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			amount, err := money.ParseNano(args[0])
			if err != nil {
				return fault.New(fault.Invalid, "AMOUNT: %s", err)
			}
			c, err := s.client(cmd)
			if err != nil {
				return err
			}
			var with id.Card
			if card != "" {
				if with, err = id.Parse[id.Card](card); err != nil {
					return fault.New(fault.Invalid, "--card: not the id of a card; see muster billing cards list")
				}
			}
			t, err := c.TopUpWith(cmd.Context(), amount, with)
			if err != nil {
				return err
			}
			if err := s.show(cmd, t, func(p *printer) { printTopUp(p, t) }); err != nil {
				return err
			}
			if t.State == "failed" || t.State == "canceled" {
				return fault.New(fault.Conflict, "the payment did not succeed: %s Try another card or amount", t.Failure)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&card, "card", "", "pay with this card (default: the default one)")
	return cmd
}

func printTopUp(p *printer, t client.TopUp) {
	sandbox := ""
	if t.Sandbox {
		sandbox = " (sandbox: no real money moved)"
	}
	switch {
	case t.State == "succeeded":
		p.line("%s %s were added%s.", nano(t.Amount), t.Currency, sandbox)
	case t.ActionURL != "":
		p.line("Your bank wants to ask you before it pays %s %s. Answer here: %s", nano(t.Amount), t.Currency, t.ActionURL)
	case t.CheckoutURL != "":
		p.line("Pay %s %s here: %s", nano(t.Amount), t.Currency, t.CheckoutURL)
	case t.State == "pending":
		p.line("The payment of %s %s is under way; the credit appears when it has settled.", nano(t.Amount), t.Currency)
	}
}

func billingTransactions(s *shell) *cobra.Command {
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "transactions", Short: "Your organisation's books, newest first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.client(cmd)
			if err != nil {
				return err
			}
			page, err := c.Transactions(cmd.Context(), client.PageOf{Limit: limit, After: after})
			if err != nil {
				return err
			}
			return s.show(cmd, page, func(p *printer) {
				rows := make([][]string, len(page.Items))
				for i, t := range page.Items {
					rows[i] = []string{when(t.At), t.Kind, t.Available.String(), t.Held.String(), t.AvailableAfter.String(), t.Memo}
				}
				p.table([]string{"WHEN", "KIND", ">AVAILABLE", ">HELD", ">AVAILABLE AFTER", "FOR"}, rows)
				if page.Next != nil {
					p.line("More: --after %s", *page.Next)
				}
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "entries at most")
	cmd.Flags().StringVar(&after, "after", "", "next of the page before")
	return cmd
}
