package billing

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func billingReceipt(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "receipt TOPUP", Short: "Show the receipt of a top-up, and what was refunded since", Args: base.Exactly("TOPUP"),
		Example: "  muster billing topups\n  muster billing receipt top_…",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := id.Parse[id.TopUp](args[0])
			if err != nil || t.IsZero() {
				return fault.New(fault.Invalid, "want the id of a payment, not %q; see muster billing topups", args[0])
			}
			r, err := s.Client(cmd).Billing.GetReceipt(cmd.Context(), t)
			return s.Result(cmd, r, err, func(p *base.Printer) { printReceipt(p, r) })
		},
	}
}

func printReceipt(p *base.Printer, r client.Receipt) {
	p.Facts("Receipt", r.Number, "Paid", base.When(r.PaidAt), "Merchant", partyLine(r.Merchant), "Customer",
		partyLine(r.Customer))
	rows := [][]string{{r.What, base.Nano(r.Net), base.Nano(r.Tax.Amount), base.Nano(r.Total)}}
	for _, x := range r.Returned {
		what := "Given back"
		if x.Kind != "refund" {
			what = "Taken back by the card's bank"
		}
		if x.State == "pending" {
			what += ", on its way"
		}
		rows = append(rows, []string{what + ", " + base.When(x.At), base.Nano(-x.Net), base.Nano(-x.Tax),
			base.Nano(-x.Total)})
	}
	if len(r.Returned) > 0 {
		rows = append(rows, []string{"Left of it", "", "", base.Nano(r.Left)})
	}
	p.Table([]string{r.Currency, ">NET", ">TAX", ">TOTAL"}, rows)
	if l := taxLabel(r.Tax); r.Tax.Amount > 0 {
		p.Line("Tax: %s, %s.", l, r.Tax.Country)
	}
	if r.Tax.Note != "" {
		p.Line("%s", r.Tax.Note)
	}
	if r.Sandbox {
		p.Line("A sandbox: no real money moved. This is no document for your books.")
	}
}

// partyLine is one side of a document on one line.
func partyLine(x client.Party) string {
	if x.Name == "" {
		return "-"
	}
	words := append([]string{x.Name}, x.Address...)
	for _, more := range []string{x.Country, x.VATID} {
		if more != "" {
			words = append(words, more)
		}
	}
	return strings.Join(words, ", ")
}
