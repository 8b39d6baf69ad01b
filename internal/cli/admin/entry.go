package admin

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func adminEntry(s *base.Session) *cobra.Command {
	cmd := base.Noun("entry", "Move money between accounts of the platform, with two admins", entryPropose(s),
		entryList(s), entryDecide(s, "approve", "Book an entry that another admin proposed",
			"checked with the bank statement",
			func(c *client.Client) decideEntry { return c.Ledger.ApproveEntry }),
		entryDecide(s, "refuse", "Refuse a proposed entry, or withdraw your own", "the wrong account",
			func(c *client.Client) decideEntry { return c.Ledger.RefuseEntry }))
	cmd.Long = `Earnings that a review refused, amounts in suspense, and other money of the platform leave their accounts
by an entry that one admin proposes and another one approves. The ledger and the audit log keep both reasons.`
	return cmd
}

func entryPropose(s *base.Session) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "propose DEBIT CREDIT AMOUNT",
		Short: "Propose an entry",
		Args:  base.Exactly("DEBIT", "CREDIT", "AMOUNT"),
		Long: `Propose to move an amount from the account DEBIT to the account CREDIT. They are suspense,
earnings_withheld, breakage, bad_debt, goodwill_credit, promo, stripe_fees, standby_relief or bank.`,
		Example: "  muster admin entry propose earnings_withheld bad_debt 85.00 --reason 'refused in review_…'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := wantReason(reason); err != nil {
				return err
			}
			if _, err := money.ParseNano(args[2]); err != nil {
				return fault.New(fault.Invalid, "AMOUNT: %s", err)
			}
			x, err := s.Client(cmd).Ledger.ProposeEntry(cmd.Context(), client.NewLedgerProposal{Debit: args[0], Credit: args[1],
				Amount: args[2], Reason: reason})
			return s.Result(cmd, x, err, func(p *base.Printer) { printProposal(p, x) })
		},
	}
	reasonFlag(cmd, &reason, "the ledger and the audit log keep it")
	return cmd
}

func entryList(s *base.Session) *cobra.Command {
	var open bool
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List proposed entries, newest first", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.Client(cmd).Ledger.ListProposals(cmd.Context(),
				client.ProposalsQuery{PageOf: client.PageOf{Limit: limit, After: after}, Open: open})
			return s.Result(cmd, page, err, func(p *base.Printer) {
				var rows [][]string
				for _, x := range page.Items {
					rows = append(rows, []string{x.ID.String(), x.State, x.Debit, x.Credit, base.Nano(x.Amount), x.Proposer,
						x.Reason})
				}
				p.List("proposed entries", []string{"PROPOSAL", "STATE", "DEBIT", "CREDIT", ">AMOUNT", "BY", "REASON"}, rows)
				base.PrintNext(p, page.Next)
			})
		},
	}
	cmd.Flags().BoolVar(&open, "open", false, "only those that wait for a decision")
	cmd.Flags().IntVar(&limit, "limit", 50, "entries at most")
	cmd.Flags().StringVar(&after, "after", "", "continue after this item, which the page before named")
	return cmd
}

// decideEntry approves or refuses a proposed entry.
type decideEntry = func(context.Context, id.LedgerProposal, client.EntryDecision) (client.LedgerProposal, error)

func entryDecide(s *base.Session, use, short, example string, do func(*client.Client) decideEntry) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     use + " PROPOSAL",
		Short:   short,
		Args:    base.Exactly("PROPOSAL"),
		Example: "  muster admin entry " + use + " lpr_… --reason '" + example + "'",
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := id.Parse[id.LedgerProposal](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "PROPOSAL: want the id of a proposed entry; see muster admin entry list")
			}
			if err := wantReason(reason); err != nil {
				return err
			}
			p, err := do(s.Client(cmd))(cmd.Context(), x, client.EntryDecision{Reason: reason})
			return s.Result(cmd, p, err, func(out *base.Printer) { printProposal(out, p) })
		},
	}
	reasonFlag(cmd, &reason, "the audit log keeps it")
	return cmd
}

func printProposal(p *base.Printer, x client.LedgerProposal) {
	p.Facts("Proposal", x.ID.String(), "State", x.State, "From", x.Debit, "To", x.Credit,
		"Amount", base.Nano(x.Amount)+" "+x.Currency, "Proposed by", x.Proposer, "Because", x.Reason,
		"Decided by", x.Decider, "Decision", x.Decision)
}
