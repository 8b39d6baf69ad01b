package main

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
)

func adminTax(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "tax PERIOD", Short: "The taxes of a year, quarter or month, by country, rate and reason", Args: exactly("PERIOD"),
		Example: "  muster admin tax 2026-Q1\n  muster admin tax 2026-01 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.client(cmd)
			if err != nil {
				return err
			}
			r, err := c.TaxReport(cmd.Context(), args[0])
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
		rows[i] = []string{d.Country, d.Reason, taxLabel(client.Tax{Name: d.Name, Percent: d.Percent}), d.VATID, nano(d.Sold), nano(d.Charged), nano(d.Returned), nano(d.GivenBack), nano(d.Net), nano(d.Tax)}
	}
	p.table([]string{"COUNTRY", "REASON", "RATE", "VAT ID", ">SOLD", ">CHARGED", ">RETURNED", ">GIVEN BACK", ">NET", ">TAX"}, rows)
	p.facts("Net", nano(r.Net)+" "+r.Currency, "Tax", nano(r.Tax)+" "+r.Currency, "Payable in all", nano(r.Payable)+" "+r.Currency)
}
