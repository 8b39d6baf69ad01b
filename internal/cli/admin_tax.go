package cli

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/fault"
)

func adminTax(s *shell) *cobra.Command {
	return &cobra.Command{
		Use:     "tax PERIOD",
		Short:   "Show the taxes of a year, quarter or month, by country, rate and reason",
		Args:    exactly("PERIOD"),
		Example: "  muster admin tax 2026-Q1\n  muster admin tax 2026-01 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := s.client(cmd).TaxReport(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := s.show(cmd, r, func(p *printer) { printTaxReport(p, r) }); err != nil {
				return err
			}
			if r.Book != r.Payable {
				return fault.New(fault.Conflict, "the book of taxes says %s, the ledger's tax_payable %s", r.Book, r.Payable)
			}
			return nil
		},
	}
}

func printTaxReport(p *printer, r client.TaxReport) {
	rows := make([][]string, len(r.Lines))
	for i, d := range r.Lines {
		rate := d.Name + " " + d.Percent + " %"
		if d.Percent == "0" {
			rate = "none"
		}
		rows[i] = []string{orDash(d.Country), tax.Reason(d.Reason).Words(), rate, d.VATID, nano(d.Sold), nano(d.Charged),
			nano(d.Returned), nano(d.GivenBack), nano(d.Net), nano(d.Tax)}
	}
	p.table([]string{"COUNTRY", "WHY", "RATE", "VAT ID", ">SOLD", ">CHARGED", ">RETURNED", ">GIVEN BACK", ">NET", ">TAX"},
		rows)
	if len(r.Offices) > 0 {
		rows := make([][]string, len(r.Offices))
		for i, o := range r.Offices {
			rows[i] = []string{o.Country, nano(o.Tax), nano(o.Remitted), nano(o.Left)}
		}
		p.table([]string{"TAX OFFICE", ">TO DECLARE", ">PAID", ">LEFT"}, rows)
	}
	p.facts("Net", nano(r.Net)+" "+r.Currency, "Tax", nano(r.Tax)+" "+r.Currency, "Payable in all", nano(r.Payable)+" "+
		r.Currency)
}

func adminRemitTax(s *shell) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "remit-tax PERIOD COUNTRY AMOUNT",
		Short:   "Book a payment to a tax office, at most what it is owed",
		Args:    exactly("PERIOD", "COUNTRY", "AMOUNT"),
		Example: "  muster admin remit-tax 2026-Q1 DE 1234.56 --reason 'transfer of 10 April'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := wantReason(reason); err != nil {
				return err
			}
			r, err := s.client(cmd).RemitTax(cmd.Context(), client.TaxRemittance{
				Period:  args[0],
				Country: args[1],
				Amount:  args[2],
				Reason:  reason,
			})
			if err != nil {
				return err
			}
			return s.show(cmd, r, func(p *printer) { printTaxReport(p, r) })
		},
	}
	reasonFlag(cmd, &reason, "such as the reference of the transfer; the audit trail keeps it")
	return cmd
}
