package billing

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
)

func billingStanding(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "standing", Short: "Show how much you may add, and your disputed payments", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			x, err := s.Client(cmd).Billing.GetStanding(cmd.Context())
			return s.Result(cmd, x, err, func(p *base.Printer) { printStanding(p, x) })
		},
	}
}

func printStanding(p *base.Printer, x client.Standing) {
	may := "any amount"
	switch {
	case x.State == "suspended":
		may = "nothing: the organisation is suspended"
	case x.DisputedLeft != nil:
		may = base.Nano(*x.DisputedLeft) + " while a payment is disputed"
	case x.Left != nil:
		may = base.Nano(*x.Left) + " until e-mail address and card are verified"
	}
	p.Facts("Standing", string(x.State), "May be added", may)
	if x.State != "ok" || x.Debt > 0 {
		p.Facts("Disputed", base.Nano(x.Disputed), "Not set aside", base.Nano(x.Short)+
			", taken from whatever is credited next",
			"To repay", base.Nano(x.Debt)+" of lost disputes, taken from whatever is credited next", "Lost disputes",
			fmt.Sprint(x.LostDisputes))
	}
}
