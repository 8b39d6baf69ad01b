package cli

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// billingPostpaid shows how the org pays afterwards, its invoices, and what a period consists of.
func billingPostpaid(s *shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "postpaid",
		Short: "Show your postpaid limit, how much of it is used, and Stripe's invoices",
		Args:  exactly(),
		Example: "  muster billing postpaid\n  muster billing postpaid usage\n  muster billing postpaid usage in_…\n  " +
			"muster billing postpaid pay in_…",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := s.client(cmd)
			t, err := c.Postpaid(cmd.Context())
			if err != nil {
				return err
			}
			page, err := c.PostpaidInvoices(cmd.Context())
			if err != nil {
				return err
			}
			out := struct {
				client.Postpaid
				Invoices []client.PostpaidInvoice `json:"invoices"`
			}{t, page.Items}
			return s.show(cmd, out, func(p *printer) {
				printPostpaid(p, t)
				if len(page.Items) == 0 {
					return
				}
				p.line("")
				rows := make([][]string, len(page.Items))
				for i, x := range page.Items {
					state := x.State
					if x.Failing {
						state += ", not paid"
					}
					rows[i] = []string{x.ID, x.Number, when(x.Start), when(x.End), cents(x.Net), cents(x.Tax.Amount), cents(x.Total) +
						" " + x.Currency, state, x.URL}
				}
				p.table([]string{"INVOICE", "NUMBER", "FROM", "TO", ">NET", ">TAX", ">TOTAL", "STATE", "PAGE"}, rows)
			})
		},
	}
	cmd.AddCommand(postpaidUsage(s), postpaidPay(s))
	return cmd
}

// cents writes an amount of whole cents.
func cents(n money.Nano) string {
	s := n.String()
	return s[:len(s)-7]
}

func postpaidUsage(s *shell) *cobra.Command {
	return &cobra.Command{
		Use:   "usage [INVOICE]",
		Short: "List the postpaid usage of the running period or of an invoice",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			of := ""
			if len(args) == 1 {
				of = args[0]
			}
			l, err := s.client(cmd).PostpaidUsage(cmd.Context(), of)
			return s.result(cmd, l, err, func(p *printer) {
				rows := make([][]string, len(l.Items))
				for i, x := range l.Items {
					late := ""
					if x.Late {
						late = "from before the period"
					}
					rows[i] = []string{x.Cluster.String(), x.Lease.String(), whenPtr(x.RanFrom), whenPtr(x.RanTo), x.Amount.String(),
						late}
				}
				p.table([]string{"CLUSTER", "LEASE", "RAN FROM", "TO", ">AMOUNT", ""}, rows)
				p.facts("Used", l.Used.String(), "Given back", l.Returned.String(), "Billed", l.Charged.String()+" "+l.Currency)
			})
		},
	}
}

func postpaidPay(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "pay INVOICE", Short: "Charge your default card for an unpaid invoice", Args: exactly("INVOICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.client(cmd).PayPostpaidInvoice(cmd.Context(), args[0]); err != nil {
				return err
			}
			return s.show(cmd, map[string]string{"invoice": args[0], "state": "asked"}, func(p *printer) {
				p.line("Your card is being charged: see muster billing postpaid.")
			})
		},
	}
}

func printPostpaid(p *printer, t client.Postpaid) {
	switch {
	case t.State == "off":
		p.line("Off: it pays ahead, with credit that was added.")
		return
	case t.State == "ending":
		p.line("Ending: nothing more is lent, and what was used is billed.")
	case t.Stopped != "":
		p.line("On, and nothing more is lent: %s", t.Stopped)
	default:
		p.line("On.")
	}
	in := " " + t.Currency
	if t.Period != nil {
		p.facts("Period", when(t.Period.Start)+" to "+when(t.Period.End), "Billed in it", nano(t.Period.Charged)+" "+
			t.Currency, "Used since", nano(t.Period.Unbilled)+" "+t.Currency)
	}
	if t.WrittenOff > 0 {
		p.facts("Written off", nano(t.WrittenOff)+in+", and nothing is lent until it is paid")
	}
	p.facts("Credit limit", nano(t.Limit)+in, "Used of it", nano(t.Used)+in, "Billed, unpaid", nano(t.Owed)+in,
		"Can be spent", nano(t.Left)+in)
}
