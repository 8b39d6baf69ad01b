package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func billingTopUps(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "topups", Short: "List top-ups with their receipts, newest first", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.client(cmd).TopUps(cmd.Context(), client.PageOf{})
			return s.result(cmd, page, err, func(p *printer) {
				rows := make([][]string, len(page.Items))
				for i, t := range page.Items {
					what := t.ReceiptURL
					for _, other := range []string{t.Failure, t.CheckoutURL, t.ActionURL} {
						if other != "" {
							what = other
						}
					}
					rows[i] = []string{when(t.CreatedAt), t.ID.String(), nano(t.Amount), nano(t.Tax.Amount), t.State, what}
				}
				p.table([]string{"WHEN", "ID", ">AMOUNT", ">TAX", "STATE", "RECEIPT, OR WHAT TO DO"}, rows)
			})
		},
	}
}

func billingCards(s *shell) *cobra.Command {
	return noun("cards", "The cards that pay", cardsList(s), cardsAdd(s), cardsDefault(s), cardsRemove(s))
}

func cardsList(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List your organisation's cards", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.client(cmd).Cards(cmd.Context())
			return s.result(cmd, page, err, func(p *printer) {
				rows := make([][]string, len(page.Items))
				for i, k := range page.Items {
					pays := ""
					if k.Default {
						pays = "pays by default"
					}
					rows[i] = []string{k.ID.String(), k.Brand, "…" + k.Last4, fmt.Sprintf("%02d/%d", k.ExpMonth, k.ExpYear), pays}
				}
				p.table([]string{"ID", "BRAND", "NUMBER", "EXPIRES", ""}, rows)
			})
		},
	}
}

func cardsAdd(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "add", Short: "Open the page on which a card is saved", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := s.client(cmd).AddCard(cmd.Context())
			return s.result(cmd, a, err, func(p *printer) {
				if a.URL == "" {
					p.line("The page is not ready yet: look again with muster billing cards add in a minute.")
					return
				}
				p.line("Save the card here: %s", a.URL)
			})
		},
	}
}

func cardsDefault(s *shell) *cobra.Command {
	return onCard(s, "default CARD", "Make a card the one that pays where none is named", (*client.Client).SetDefaultCard,
		"It pays by default now.")
}

func cardsRemove(s *shell) *cobra.Command {
	return onCard(s, "remove CARD", "Forget a card", (*client.Client).RemoveCard, "The card is forgotten.")
}

func onCard(s *shell, use, short string, do func(*client.Client, context.Context, id.Card) error,
	done string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: exactly("CARD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			card, err := id.Parse[id.Card](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "CARD: not the id of a card; see muster billing cards list")
			}
			if err := do(s.client(cmd), cmd.Context(), card); err != nil {
				return err
			}
			return s.show(cmd, map[string]string{"id": card.String()}, func(p *printer) { p.line("%s", done) })
		},
	}
}
