// Package billing holds the commands about money: balances, top-ups, cards, budgets, statements, documents, bonds and
// payouts.
package billing

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/text"
)

// Command is muster billing.
func Command(s *base.Session) *cobra.Command {
	s.Argument("CARD", base.Names(s, func(c *client.Client) base.Lister[client.Card] {
		return base.Unpaged(c.Billing.ListCards)
	}, func(v client.Card) []string { return []string{base.Described(v.ID.String(), v.Brand, v.Last4)} }))
	s.Argument("TOPUP", base.Names(s, func(c *client.Client) base.Lister[client.TopUp] { return c.Billing.ListTopUps },
		func(t client.TopUp) []string {
			return []string{base.Described(t.ID.String(), base.Nano(t.Amount), t.Currency, string(t.State))}
		}))
	s.Argument("INVOICE", base.Names(s, func(c *client.Client) base.Lister[client.PostpaidInvoice] {
		return base.Unpaged(c.Billing.ListPostpaidInvoices)
	},
		func(i client.PostpaidInvoice) []string { return []string{base.Described(i.ID, i.Number, i.State)} }))
	return base.Noun("billing", "Show your balance, add credit and list payments", billingBalance(s),
		billingStanding(s), billingPostpaid(s),
		billingTopUp(s), billingTopUps(s), billingReceipt(s), billingCards(s), billingAuto(s), billingRefund(s),
		billingRedeem(s), billingTransactions(s), billingVerify(s))
}

func billingBalance(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "balance", Short: "Show your wallet: available, held, and how long it lasts", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := s.Client(cmd).Billing.GetBalance(cmd.Context())
			return s.Result(cmd, b, err, func(p *base.Printer) {
				runway := "no cluster is running"
				if b.RunwaySeconds != nil {
					runway = base.Seconds(*b.RunwaySeconds)
				}
				storage := ""
				if b.StorageOwedSince != nil {
					storage = fmt.Sprintf("%s %s since %s: add at least that much, or volumes are hidden and erased; see "+
						"muster volume list", base.Nano(b.StorageOwed), b.Currency, base.When(*b.StorageOwedSince))
				}
				p.Facts("Available", base.Nano(b.Available)+" "+b.Currency, "Held", base.Nano(b.Held)+" for clusters", "Accrued",
					base.Nano(b.Accrued)+" of what is held",
					"Spending", base.Micro(b.BurnPerHour)+" per hour", "Lasts", runway, "Owed for storage", storage)
			})
		},
	}
}

func billingTopUp(s *base.Session) *cobra.Command {
	var card string
	var only, yes bool
	cmd := &cobra.Command{
		Use:   "topup AMOUNT",
		Short: "Add credit to your wallet",
		Example: "  muster billing topup 25.00\n  muster billing topup 25.00 --price   # what is charged with tax; " +
			"nothing is paid",
		Args: base.Exactly("AMOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			amount, err := money.ParseNano(args[0])
			if err != nil {
				return fault.New(fault.Invalid, "AMOUNT: %s", err)
			}
			c := s.Client(cmd)
			var with id.Card
			if card != "" {
				if with, err = id.Parse[id.Card](card); err != nil {
					return fault.New(fault.Invalid, "--card: not the id of a card; see muster billing cards list")
				}
			}
			price, err := c.Billing.GetPrice(cmd.Context(), client.PriceQuery{Amount: amount.String()})
			if err != nil {
				return err
			}
			if only {
				return s.Show(cmd, price, func(p *base.Printer) { printPrice(p, price) })
			}
			if err := confirmPrice(cmd, price, yes); err != nil {
				return err
			}
			t, err := c.Billing.CreateTopUp(cmd.Context(), client.CreateTopUpRequest{
				Amount: amount.String(), Total: price.Total.String(), CardID: with.String(),
			})
			if err != nil {
				return err
			}
			if err := s.Show(cmd, t, func(p *base.Printer) { printTopUp(p, t) }); err != nil {
				return err
			}
			if t.State == "failed" || t.State == "canceled" {
				return fault.New(fault.Conflict, "the payment did not succeed: %s Try another card or amount", t.Failure)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&card, "card", "", "pay with this card (default: the default one)")
	cmd.Flags().BoolVar(&only, "price", false, "only say what is charged with tax")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask before tax is charged")
	return cmd
}

func printPrice(p *base.Printer, x client.Price) {
	p.Facts("Credit", base.Nano(x.Amount)+" "+x.Currency, taxLabel(x.Tax), base.Nano(x.Tax.Amount)+" "+x.Currency,
		"Charged",
		base.Nano(x.Total)+" "+x.Currency)
	if x.Tax.Note != "" {
		p.Line("%s", x.Tax.Note)
	}
}

func taxLabel(t client.Tax) string {
	if t.Percent == "0" {
		return "Tax"
	}
	return t.Name + " " + t.Percent + " %"
}

// confirmPrice prints what is charged if there is tax, and asks for confirmation on a terminal.
func confirmPrice(cmd *cobra.Command, x client.Price, yes bool) error {
	if x.Tax.Amount == 0 {
		return nil
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "%s %s and %s %s: %s %s are charged.\n", base.Nano(x.Amount), x.Currency,
		text.OneLine(taxLabel(x.Tax)), base.Nano(x.Tax.Amount), base.Nano(x.Total), x.Currency)
	if _, there := base.Terminal(cmd.InOrStdin()); err != nil || yes || !there {
		return err
	}
	if _, err := fmt.Fprint(cmd.ErrOrStderr(), "Pay? [y/N] "); err != nil {
		return err
	}
	answer, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); err == nil && (a == "y" || a == "yes") {
		return nil
	}
	return fault.New(fault.Conflict, "nothing was paid")
}

// withTax is what a payment was charged, when that is more than what was added.
func withTax(t client.TopUp) string {
	if t.Tax.Amount == 0 {
		return ""
	}
	return " (" + base.Nano(t.Total) + " with " + taxLabel(t.Tax) + ")"
}

func printTopUp(p *base.Printer, t client.TopUp) {
	sandbox := ""
	if t.Sandbox {
		sandbox = " (sandbox: no real money moved)"
	}
	switch {
	case t.State == "succeeded":
		p.Line("%s %s were added%s%s.", base.Nano(t.Amount), t.Currency, withTax(t), sandbox)
	case t.ActionURL != "":
		p.Line("Your bank asks you to confirm the payment of %s %s: %s", base.Nano(t.Total), t.Currency,
			t.ActionURL)
	case t.CheckoutURL != "":
		p.Line("Pay %s %s here: %s", base.Nano(t.Total), t.Currency, t.CheckoutURL)
	case t.State == "pending":
		p.Line("The payment of %s %s is under way; the credit appears when it has settled.", base.Nano(t.Total), t.Currency)
	}
}

func billingTransactions(s *base.Session) *cobra.Command {
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "transactions", Short: "List your organisation's ledger entries, newest first", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.Client(cmd).Billing.ListTransactions(cmd.Context(), client.PageOf{Limit: limit, After: after})
			return s.Result(cmd, page, err, func(p *base.Printer) {
				rows := make([][]string, len(page.Items))
				for i, t := range page.Items {
					rows[i] = []string{base.When(t.At), t.Kind, t.Available.String(), t.Held.String(), t.AvailableAfter.String(),
						t.Memo}
				}
				p.List("transactions", []string{"WHEN", "KIND", ">AVAILABLE", ">HELD", ">AVAILABLE AFTER", "FOR"}, rows)
				base.PrintNext(p, page.Next)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "entries at most")
	cmd.Flags().StringVar(&after, "after", "", "continue after this item, which the page before named")
	return cmd
}
