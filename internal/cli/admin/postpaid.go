package admin

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/cli/billing"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func adminPostpaid(s *base.Session) *cobra.Command {
	cmd := base.Noun("postpaid", "Organisations that pay afterwards, up to a credit limit", adminPostpaidList(s),
		adminPostpaidOn(s), adminPostpaidOff(s),
		adminPostpaidInvoices(s), adminPostpaidWriteOff(s), adminPostpaidBank(s), adminPostpaidRelease(s))
	cmd.Example = "  muster admin postpaid on org_… --limit 500 --reason 'contract 2026-17'\n  muster admin postpaid " +
		"list\n  muster admin postpaid off org_… --reason 'contract ended'\n" +
		"  muster admin postpaid invoices org_…\n  muster admin postpaid write-off org_… in_… --reason 'insolvent'\n" +
		"  muster admin postpaid paid-by-bank org_… in_… 7.90 --reference 2026-11-20/4711 --reason 'after a lost dispute'"
	return cmd
}

func adminPostpaidList(s *base.Session) *cobra.Command {
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List postpaid organisations and how much of their limits is used", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.Client(cmd).Admin.ListPostpaid(cmd.Context(), client.PageOf{Limit: limit, After: after})
			return s.Result(cmd, page, err, func(p *base.Printer) {
				rows := make([][]string, len(page.Items))
				for i, t := range page.Items {
					state := string(t.State)
					if t.WrittenOff > 0 {
						state += ", " + base.Nano(t.WrittenOff) + " written off"
					}
					if t.Stopped != "" {
						state += ", stopped: " + t.Stopped
					}
					rows[i] = []string{t.Org.String(), t.Name, base.Nano(t.Limit) + " " + t.Currency, base.Nano(t.Used),
						base.Nano(t.Owed),
						base.WhenPtr(t.Since), state}
				}
				p.List("postpaid organisations",
					[]string{"ORGANISATION", "NAME", ">LIMIT", ">USED", ">BILLED, UNPAID", "CHANGED", "STATE"}, rows)
				base.PrintNext(p, page.Next)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "organisations at most")
	cmd.Flags().StringVar(&after, "after", "", "continue after this item, which the page before named")
	return cmd
}

func adminPostpaidOn(s *base.Session) *cobra.Command {
	var limit, reason string
	cmd := &cobra.Command{
		Use: "on ORG", Short: "Set an organisation's postpaid limit; it sees the reason", Args: base.Exactly("ORG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := money.ParseNano(limit); err != nil {
				return fault.New(fault.Invalid, "--limit: %s", err)
			}
			return changePostpaid(s, cmd, args[0], client.ChangePostpaidRequest{On: true, CreditLimit: limit, Reason: reason})
		},
	}
	cmd.Flags().StringVar(&limit, "limit", "", "what it may use and owe at most")
	cmd.Flags().StringVar(&reason, "reason", "", "why; the organisation reads it, and the audit trail keeps it")
	return cmd
}

func adminPostpaidOff(s *base.Session) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "off ORG", Short: "End an organisation's postpaid limit; what it used is billed", Args: base.Exactly("ORG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changePostpaid(s, cmd, args[0], client.ChangePostpaidRequest{Reason: reason})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; the organisation reads it, and the audit trail keeps it")
	return cmd
}

func changePostpaid(s *base.Session, cmd *cobra.Command, of string, change client.ChangePostpaidRequest) error {
	org, err := id.Parse[id.Org](of)
	if err != nil {
		return fault.New(fault.Invalid, "ORG: want the id of an organisation")
	}
	if change.Reason == "" {
		return fault.New(fault.Invalid, "--reason is missing: the organisation reads it, and the audit trail keeps it")
	}
	t, err := s.Client(cmd).Admin.ChangePostpaid(cmd.Context(), org, change)
	return s.Result(cmd, t, err, func(p *base.Printer) { billing.PrintPostpaid(p, client.Postpaid{PostpaidTerms: t}) })
}

func adminPostpaidInvoices(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "invoices ORG",
		Short: "List Stripe's invoices to an organisation, and which were written off",
		Args:  base.Exactly("ORG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			org, err := orgArg(args[0])
			if err != nil {
				return err
			}
			page, err := s.Client(cmd).Admin.ListOrgInvoices(cmd.Context(), org)
			return s.Result(cmd, page, err, func(p *base.Printer) {
				rows := make([][]string, len(page.Items))
				for i, in := range page.Items {
					rows[i] = []string{in.ID, in.Number, base.When(in.Start) + " to " + base.When(in.End), base.Nano(in.Total) + " " +
						in.Currency,
						base.Nano(in.Tax.Amount), invoiceWord(in)}
				}
				p.List("invoices", []string{"INVOICE", "NUMBER", "PERIOD", ">TOTAL", ">OF IT TAX", "STATE"}, rows)
			})
		},
	}
}

// invoiceWord describes the state of an invoice for an admin.
func invoiceWord(in client.OrgInvoice) string {
	state := in.State
	if in.Failing {
		state += ", not paid"
	}
	if in.Lost > 0 {
		state += ", " + base.Nano(in.Lost) + " lost in a dispute"
	}
	if in.PaidByBank > 0 {
		state += ", " + base.Nano(in.PaidByBank) + " paid by bank"
	}
	switch w := in.WriteOff; {
	case w == nil:
	case w.State == "asked":
		state += ", being given up"
	case w.State == "refused":
		state += ", not given up: " + w.Failure
	case w.State == "booked":
		state += ", " + base.Nano(w.Amount) + " written off"
	case w.State == "recovered":
		state += " after it was written off"
	}
	return state
}

func adminPostpaidWriteOff(s *base.Session) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "write-off ORG INVOICE",
		Short: "Write off an unpaid invoice, or what a lost dispute left unpaid; the organisation gets no credit until it " +
			"is paid",
		Args: base.Exactly("ORG", "INVOICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			org, err := orgArg(args[0])
			if err != nil {
				return err
			}
			if err := wantReason(reason); err != nil {
				return err
			}
			in, err := s.Client(cmd).Admin.WriteOffInvoice(cmd.Context(), org, args[1],
				client.WriteOffInvoiceRequest{Reason: reason})
			return s.Result(cmd, in, err, func(p *base.Printer) {
				if in.WriteOff != nil && in.WriteOff.State == "booked" {
					p.Line("Given up: %s %s are bad debt.", base.Nano(in.WriteOff.Amount), in.Currency)
					return
				}
				p.Line("Given up. It is booked when Stripe has it as uncollectible: see muster admin postpaid invoices %s.", org)
			})
		},
	}
	reasonFlag(cmd, &reason, "the audit trail keeps it")
	return cmd
}

func adminPostpaidBank(s *base.Session) *cobra.Command {
	var reference, reason string
	cmd := &cobra.Command{
		Use:   "paid-by-bank ORG INVOICE AMOUNT",
		Short: "Book a bank transfer that pays what a lost dispute took of an invoice",
		Args:  base.Exactly("ORG", "INVOICE", "AMOUNT"),
		Example: "  muster admin postpaid paid-by-bank org_… in_… 7.90 --reference 2026-11-20/4711 --reason 'after a lost " +
			"dispute'",
		RunE: func(cmd *cobra.Command, args []string) error {
			org, err := orgArg(args[0])
			if err != nil {
				return err
			}
			if _, err := money.ParseNano(args[2]); err != nil {
				return fault.New(fault.Invalid, "AMOUNT: %s", err)
			}
			if reference == "" {
				return fault.New(fault.Invalid, "--reference is missing: a transfer is booked once")
			}
			if err := wantReason(reason); err != nil {
				return err
			}
			in, err := s.Client(cmd).Admin.BookBankPayment(cmd.Context(), org, args[1], client.BookBankPaymentRequest{
				Amount:    args[2],
				Reference: reference,
				Reason:    reason,
			})
			if err != nil {
				return err
			}
			return s.Show(cmd, in, func(p *base.Printer) {
				p.Line("Booked: %s %s of what the dispute took are paid by bank, %s are not.", base.Nano(in.PaidByBank),
					in.Currency,
					base.Nano(in.LostUnpaid))
			})
		},
	}
	cmd.Flags().StringVar(&reference, "reference", "", "of the transfer, as your bank's statement has it; of an "+
		"invoice, one is booked once")
	reasonFlag(cmd, &reason, "the audit trail keeps it")
	return cmd
}

func adminPostpaidRelease(s *base.Session) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "release-refund REFUND",
		Example: "  muster admin postpaid release-refund re_… --reason 'a goodwill refund'",
		Short:   "Approve the operators' earnings of an invoice that was refunded at Stripe",
		Args:    base.Exactly("REFUND"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := wantReason(reason); err != nil {
				return err
			}
			_, err := s.Client(cmd).Admin.ReleaseRefund(cmd.Context(), args[0], client.ReleaseRefundRequest{Reason: reason})
			if err != nil {
				return err
			}
			return s.Show(cmd, map[string]string{
				"id":    args[0],
				"state": "released",
			}, func(p *base.Printer) { p.Line("The hosts are paid what they earned, as usual.") })
		},
	}
	reasonFlag(cmd, &reason, "the audit trail keeps it")
	return cmd
}
