package billing

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/money"
)

// billingPostpaid shows how the org pays afterwards, its invoices, and what a period consists of.
func billingPostpaid(s *base.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "postpaid",
		Short: "Show your postpaid limit, how much of it is used, and Stripe's invoices",
		Args:  base.Exactly(),
		Example: "  muster billing postpaid\n  muster billing postpaid usage\n  muster billing postpaid usage in_…\n  " +
			"muster billing postpaid pay in_…",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := s.Client(cmd)
			t, err := c.Billing.GetPostpaid(cmd.Context())
			if err != nil {
				return err
			}
			page, err := c.Billing.ListPostpaidInvoices(cmd.Context())
			if err != nil {
				return err
			}
			out := struct {
				client.Postpaid
				Invoices []client.PostpaidInvoice `json:"invoices"`
			}{t, page.Items}
			return s.Show(cmd, out, func(p *base.Printer) {
				PrintPostpaid(p, t)
				if len(page.Items) == 0 {
					return
				}
				p.Line("")
				rows := make([][]string, len(page.Items))
				for i, x := range page.Items {
					state := x.State
					if x.Failing {
						state += ", not paid"
					}
					rows[i] = []string{x.ID, x.Number, base.When(x.Start), base.When(x.End), cents(x.Net), cents(x.Tax.Amount),
						cents(x.Total) +
							" " + x.Currency, state, x.URL}
				}
				p.List("invoices", []string{"INVOICE", "NUMBER", "FROM", "TO", ">NET", ">TAX", ">TOTAL", "STATE", "PAGE"}, rows)
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

func postpaidUsage(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "usage [INVOICE]",
		Short: "List the postpaid usage of the running period or of an invoice",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			of := ""
			if len(args) == 1 {
				of = args[0]
			}
			l, err := s.Client(cmd).Billing.ListPostpaidUsage(cmd.Context(), client.PostpaidUsageQuery{Invoice: of})
			return s.Result(cmd, l, err, func(p *base.Printer) {
				rows := make([][]string, len(l.Items))
				for i, x := range l.Items {
					late := ""
					if x.Late {
						late = "from before the period"
					}
					rows[i] = []string{x.Cluster.String(), x.Lease.String(), base.WhenPtr(x.RanFrom), base.WhenPtr(x.RanTo),
						x.Amount.String(),
						late}
				}
				p.Table([]string{"CLUSTER", "LEASE", "RAN FROM", "TO", ">AMOUNT", ""}, rows)
				p.Facts("Storage", l.Storage.String(), "Used", l.Used.String(), "Given back", l.Returned.String(),
					"Billed", l.Charged.String()+" "+l.Currency)
			})
		},
	}
}

func postpaidPay(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "pay INVOICE", Short: "Charge your default card for an unpaid invoice", Args: base.Exactly("INVOICE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := s.Client(cmd).Billing.PayPostpaidInvoice(cmd.Context(), args[0]); err != nil {
				return err
			}
			return s.Show(cmd, map[string]string{"invoice": args[0], "state": "asked"}, func(p *base.Printer) {
				p.Line("Your card is being charged: see muster billing postpaid.")
			})
		},
	}
}

// PrintPostpaid prints how an organisation that pays afterwards stands.
func PrintPostpaid(p *base.Printer, t client.Postpaid) {
	switch {
	case t.State == client.PostpaidOff:
		p.Line("Off: it pays ahead, with credit that was added.")
		return
	case t.State == client.PostpaidEnding:
		p.Line("Ending: nothing more is lent, and what was used is billed.")
	case t.Stopped != "":
		p.Line("On, and nothing more is lent: %s", t.Stopped)
	default:
		p.Line("On.")
	}
	in := " " + t.Currency
	if t.Period != nil {
		p.Facts("Period", base.When(t.Period.Start)+" to "+base.When(t.Period.End), "Billed in it",
			base.Nano(t.Period.Charged)+" "+
				t.Currency, "Used since", base.Nano(t.Period.Unbilled)+" "+t.Currency)
	}
	if t.WrittenOff > 0 {
		p.Facts("Written off", base.Nano(t.WrittenOff)+in+", and nothing is lent until it is paid")
	}
	p.Facts("Credit limit", base.Nano(t.Limit)+in, "Used of it", base.Nano(t.Used)+in, "Billed, unpaid", base.Nano(t.Owed)+
		in,
		"Can be spent", base.Nano(t.Left)+in)
}
