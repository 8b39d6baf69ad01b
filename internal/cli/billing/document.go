package billing

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// DocumentCommand is muster document.
func DocumentCommand(s *base.Session) *cobra.Command {
	cmd := base.Noun("document", "Receipts, credit notes and self-billing documents",
		documentList(s, false), documentShow(s, func(c *client.Client) getDocument { return c.Documents.Get }))
	cmd.Example = "  muster document list --year 2026\n  muster document list --series credit_note\n  muster document " +
		"show R-2026-000001"
	return cmd
}

// AllDocuments is muster admin documents.
func AllDocuments(s *base.Session) *cobra.Command {
	cmd := base.Noun("document", "Documents of all organisations", documentList(s, true),
		documentShow(s, func(c *client.Client) getDocument { return c.Admin.GetAnyDocument }))
	cmd.Example = "  muster admin document list --year 2026 --org org_…\n  muster admin document show R-2026-000001"
	return cmd
}

func documentList(s *base.Session, all bool) *cobra.Command {
	var f client.AllDocumentsQuery
	cmd := &cobra.Command{
		Use: "list", Short: "List documents with their numbers, newest first", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := s.Client(cmd)
			if f.Org != "" {
				if of, err := id.Parse[id.Org](f.Org); err != nil || of.IsZero() {
					return fault.New(fault.Invalid, "--org: %q is not the id of an organisation", f.Org)
				}
			}
			var page client.Page[client.Document]
			var err error
			if all {
				page, err = c.Admin.ListAllDocuments(cmd.Context(), f)
			} else {
				page, err = c.Documents.List(cmd.Context(), f.DocumentsQuery)
			}
			return s.Result(cmd, page, err, func(p *base.Printer) {
				if len(page.Items) == 0 {
					p.Line("No documents. A payment has a receipt as soon as it arrives.")
					return
				}
				heads := []string{"NUMBER", "DATE", "DOCUMENT", "FOR", "CORRECTS", ">TOTAL", "CURRENCY"}
				if all {
					heads = append(heads, "ORGANISATION")
				}
				rows := make([][]string, len(page.Items))
				for i, d := range page.Items {
					rows[i] = []string{d.Number, d.Date, seriesName(d.Series), base.OrDash(d.Party), base.OrDash(d.Corrects),
						base.Nano(d.Total),
						d.Currency}
					if d.Erased {
						rows[i][3], rows[i][5] = "erased", "-"
					}
					if all {
						rows[i] = append(rows[i], d.Org.String())
					}
				}
				p.List("documents", heads, rows)
				base.PrintNext(p, page.Next)
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.Series, "series", "", "receipt, credit_note or self_billing (default: all)")
	fl.IntVar(&f.Year, "year", 0, "the year in the number (default: all)")
	fl.IntVar(&f.Limit, "limit", 50, "documents at most")
	fl.StringVar(&f.After, "after", "", "continue after this item, which the page before named")
	if all {
		fl.StringVar(&f.Org, "org", "", "id of an organisation (default: all)")
	}
	_ = cmd.RegisterFlagCompletionFunc("series", cobra.FixedCompletions([]string{"receipt", "credit_note", "self_billing"},
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// getDocument gets a document by its number.
type getDocument = func(context.Context, string) (client.FullDocument, error)

func documentShow(s *base.Session, read func(*client.Client) getDocument) *cobra.Command {
	return &cobra.Command{
		Use:   "show NUMBER",
		Short: "Show a document as it was issued, and the numbers of those that correct it",
		Args:  base.Exactly("NUMBER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := s.Client(cmd)
			d, err := read(c)(cmd.Context(), args[0])
			return s.Result(cmd, d, err, func(p *base.Printer) {
				printDocument(p, d)
				p.Line("To print it: %s/documents/%s", c.Server(), d.Number)
			})
		},
	}
}

func seriesName(series client.DocumentSeries) string {
	switch series {
	case client.SeriesReceipt:
		return "Receipt"
	case client.SeriesCreditNote:
		return "Credit note"
	case client.SeriesSelfBilling:
		return "Self-billing invoice"
	}
	return string(series)
}

func printDocument(p *base.Printer, d client.FullDocument) {
	date := d.Date
	if d.Zone != "UTC" {
		date += " (" + d.Zone + ")"
	}
	p.Facts(seriesName(d.Series), d.Number, "Date", date, "Corrects", d.Corrects)
	for _, n := range d.CorrectedBy {
		p.Line("Corrected by %s.", n)
	}
	switch {
	case d.Receipt != nil:
		r := *d.Receipt
		p.Facts("Seller", partyLine(r.Merchant), "Customer", partyLine(r.Customer))
		printTaxed(p, r.Currency, r.What, r.Net, r.Total, r.Tax)
	case d.CreditNote != nil:
		c := *d.CreditNote
		p.Facts("Seller", partyLine(c.Merchant), "Customer", partyLine(c.Customer))
		printTaxed(p, c.Currency, creditReason(c), c.Net, c.Total, c.Tax)
	case d.SelfBilling != nil:
		b := *d.SelfBilling
		p.Facts("Supplier", partyLine(b.Supplier), "Recipient", partyLine(b.Recipient), "Period", b.From+" to "+b.To+" (UTC)")
		p.Table([]string{b.Currency, ">AMOUNT"}, [][]string{{"Billed to renters", base.Nano(b.Billed)},
			{"Platform fee", base.Nano(-b.Fee)},
			{"Earned", base.Nano(b.Earned)}, {"Returned", base.Nano(-b.Returned)}, {"Total", base.Nano(b.Total)}})
		p.Line("%s", b.Note)
		p.Line("%s", b.Wording)
	default:
		p.Line("Its content was erased when its retention was over.")
	}
}

func printTaxed(p *base.Printer, currency, what string, net, total money.Nano, t client.Tax) {
	p.Table([]string{currency, ">NET", ">TAX", ">TOTAL"},
		[][]string{{what, base.Nano(net), base.Nano(t.Amount), base.Nano(total)}})
	if label := taxLabel(t); t.Amount != 0 {
		p.Line("Tax: %s, %s.", label, t.Country)
	}
	if t.Note != "" {
		p.Line("%s", t.Note)
	}
}

// creditReason says why a credit note was issued.
func creditReason(c client.CreditNote) string {
	switch c.Kind {
	case "refund":
		return "Refund of " + c.Corrects
	case "refund_returned":
		return "Cancels " + c.Cancels + ": the refund did not arrive"
	case "dispute_lost":
		return "Taken back by the card's bank, of " + c.Corrects
	case "invoice_refund":
		return "Refund of invoice " + c.Corrects
	case "invoice_refund_returned":
		return "Cancels " + c.Cancels + ": the refund of an invoice did not arrive"
	}
	return string(c.Kind)
}
