package billing

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func billingTopUps(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "topups", Short: "List top-ups with their receipts, newest first", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.Client(cmd).Billing.ListTopUps(cmd.Context(), client.PageOf{})
			return s.Result(cmd, page, err, func(p *base.Printer) {
				rows := make([][]string, len(page.Items))
				for i, t := range page.Items {
					what := t.ReceiptURL
					for _, other := range []string{t.Failure, t.CheckoutURL, t.ActionURL} {
						if other != "" {
							what = other
						}
					}
					rows[i] = []string{base.When(t.CreatedAt), t.ID.String(), base.Nano(t.Amount), base.Nano(t.Tax.Amount),
						string(t.State), what}
				}
				p.List("top-ups", []string{"WHEN", "ID", ">AMOUNT", ">TAX", "STATE", "RECEIPT, OR WHAT TO DO"}, rows)
			})
		},
	}
}

func billingCards(s *base.Session) *cobra.Command {
	return base.Noun("cards", "The cards that pay", cardsList(s), cardsAdd(s), cardsDefault(s), cardsRemove(s))
}

func cardsList(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List your organisation's cards", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.Client(cmd).Billing.ListCards(cmd.Context())
			return s.Result(cmd, page, err, func(p *base.Printer) {
				rows := make([][]string, len(page.Items))
				for i, k := range page.Items {
					pays := ""
					if k.Default {
						pays = "pays by default"
					}
					rows[i] = []string{k.ID.String(), k.Brand, "…" + k.Last4, fmt.Sprintf("%02d/%d", k.ExpMonth, k.ExpYear), pays}
				}
				p.List("cards", []string{"ID", "BRAND", "NUMBER", "EXPIRES", ""}, rows)
			})
		},
	}
}

func cardsAdd(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "add", Short: "Open the page on which a card is saved", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := s.Client(cmd).Billing.AddCard(cmd.Context())
			return s.Result(cmd, a, err, func(p *base.Printer) {
				if a.URL == "" {
					p.Line("The page is not ready yet: look again with muster billing cards add in a minute.")
					return
				}
				p.Line("Save the card here: %s", a.URL)
			})
		},
	}
}

func cardsDefault(s *base.Session) *cobra.Command {
	return onCard(s, "default CARD", "Make a card the one that pays where none is named",
		func(ctx context.Context, c *client.Client, card id.Card) error {
			_, err := c.Billing.ChangeCard(ctx, card, client.ChangeCardRequest{Default: true})
			return err
		}, "It pays by default now.")
}

func cardsRemove(s *base.Session) *cobra.Command {
	return onCard(s, "remove CARD", "Delete a card",
		func(ctx context.Context, c *client.Client, card id.Card) error {
			return c.Billing.RemoveCard(ctx, card)
		},
		"The card is deleted.")
}

func onCard(s *base.Session, use, short string, do func(context.Context, *client.Client, id.Card) error,
	done string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: base.Exactly("CARD"),
		Example: "  muster billing cards " + strings.Replace(use, "CARD", "card_…", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			card, err := id.Parse[id.Card](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "CARD: not the id of a card; see muster billing cards list")
			}
			if err := do(cmd.Context(), s.Client(cmd), card); err != nil {
				return err
			}
			return s.Show(cmd, map[string]string{"id": card.String()}, func(p *base.Printer) { p.Line("%s", done) })
		},
	}
}
