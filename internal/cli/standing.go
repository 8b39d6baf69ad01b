package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
)

func billingStanding(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "standing", Short: "Show how much you may add, and your disputed payments", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			x, err := s.client(cmd).Standing(cmd.Context())
			return s.result(cmd, x, err, func(p *printer) { printStanding(p, x) })
		},
	}
}

func printStanding(p *printer, x client.Standing) {
	may := "any amount"
	switch {
	case x.State == "suspended":
		may = "nothing: the organisation is suspended"
	case x.DisputedLeft != nil:
		may = nano(*x.DisputedLeft) + " while a payment is disputed"
	case x.Left != nil:
		may = nano(*x.Left) + " until e-mail address and card are verified"
	}
	p.facts("Standing", x.State, "May be added", may)
	if x.State != "ok" || x.Debt > 0 {
		p.facts("Disputed", nano(x.Disputed), "Not set aside", nano(x.Short)+", taken from whatever is credited next",
			"To repay", nano(x.Debt)+" of lost disputes, taken from whatever is credited next", "Lost disputes",
			fmt.Sprint(x.LostDisputes))
	}
}
