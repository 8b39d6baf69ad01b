package admin

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

func adminTax(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:     "tax PERIOD",
		Short:   "Show the taxes of a year, quarter or month, by country, rate and reason",
		Args:    base.Exactly("PERIOD"),
		Example: "  muster admin tax 2026-Q1\n  muster admin tax 2026-01 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := s.Client(cmd).Ledger.GetTaxReport(cmd.Context(), client.TaxQuery{Period: args[0]})
			if err != nil {
				return err
			}
			if err := s.Show(cmd, r, func(p *base.Printer) { printTaxReport(p, r) }); err != nil {
				return err
			}
			if r.Book != r.Payable {
				return fault.New(fault.Conflict, "the book of taxes says %s, the ledger's tax_payable %s", r.Book, r.Payable)
			}
			return nil
		},
	}
}

func printTaxReport(p *base.Printer, r client.TaxReport) {
	rows := make([][]string, len(r.Lines))
	for i, d := range r.Lines {
		rate := d.Name + " " + d.Percent + " %"
		if d.Percent == "0" {
			rate = "none"
		}
		rows[i] = []string{base.OrDash(d.Country), d.Reason.Words(), rate, d.VATID, base.Nano(d.Sold),
			base.Nano(d.Charged),
			base.Nano(d.Returned), base.Nano(d.GivenBack), base.Nano(d.Net), base.Nano(d.Tax)}
	}
	p.Table([]string{"COUNTRY", "WHY", "RATE", "VAT ID", ">SOLD", ">CHARGED", ">RETURNED", ">GIVEN BACK", ">NET", ">TAX"},
		rows)
	if len(r.Offices) > 0 {
		rows := make([][]string, len(r.Offices))
		for i, o := range r.Offices {
			rows[i] = []string{o.Country, base.Nano(o.Tax), base.Nano(o.Remitted), base.Nano(o.Left)}
		}
		p.Table([]string{"TAX OFFICE", ">TO DECLARE", ">PAID", ">LEFT"}, rows)
	}
	p.Facts("Net", base.Nano(r.Net)+" "+r.Currency, "Tax", base.Nano(r.Tax)+" "+r.Currency, "Payable in all",
		base.Nano(r.Payable)+" "+
			r.Currency)
}

func adminRemitTax(s *base.Session) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "remit-tax PERIOD COUNTRY AMOUNT",
		Short:   "Book a payment to a tax office, at most what it is owed",
		Args:    base.Exactly("PERIOD", "COUNTRY", "AMOUNT"),
		Example: "  muster admin remit-tax 2026-Q1 DE 1234.56 --reason 'transfer of 10 April'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := wantReason(reason); err != nil {
				return err
			}
			r, err := s.Client(cmd).Ledger.RemitTax(cmd.Context(), client.RemitTaxRequest{
				Period:  args[0],
				Country: args[1],
				Amount:  args[2],
				Reason:  reason,
			})
			if err != nil {
				return err
			}
			return s.Show(cmd, r, func(p *base.Printer) { printTaxReport(p, r) })
		},
	}
	reasonFlag(cmd, &reason, "such as the reference of the transfer; the audit trail keeps it")
	return cmd
}
