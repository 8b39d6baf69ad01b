package billing

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

func billingAuto(s *base.Session) *cobra.Command {
	var below, amount, dailyCap string
	var off bool
	cmd := &cobra.Command{
		Use: "auto-topup", Short: "Set up automatic top-ups; without flags, show them", Args: base.Exactly(),
		Example: "  muster billing auto-topup --below 20 --amount 50 --daily-cap 200\n  muster billing auto-topup --off",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := s.Client(cmd)
			var a client.AutoTopUp
			var err error
			switch {
			case off:
				a, err = c.Billing.SetAutoTopUp(cmd.Context(), client.SetAutoTopUpRequest{})
			case below+amount+dailyCap == "":
				a, err = c.Billing.GetAutoTopUp(cmd.Context())
			default:
				for _, f := range []struct{ flag, text string }{
					{"--below", below}, {"--amount", amount}, {"--daily-cap", dailyCap},
				} {
					if _, err = money.ParseNano(f.text); err != nil {
						return fault.New(fault.Invalid, "%s: %s", f.flag, err)
					}
				}
				a, err = c.Billing.SetAutoTopUp(cmd.Context(),
					client.SetAutoTopUpRequest{Enabled: true, Threshold: below, Amount: amount, DailyCap: dailyCap})
			}
			return s.Result(cmd, a, err, func(p *base.Printer) {
				switch {
				case a.Enabled:
					p.Line("When less than %s is available, %s is added, at most %s in 24 hours.", base.Nano(a.Threshold),
						base.Nano(a.Amount),
						base.Nano(a.DailyCap))
				case a.Stopped != "":
					p.Line("Off: it was switched off by itself. %s", a.Stopped)
				default:
					p.Line("Off.")
				}
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&below, "below", "", "when less than this is available")
	f.StringVar(&amount, "amount", "", "how much to add")
	f.StringVar(&dailyCap, "daily-cap", "", "no more than this in 24 hours")
	f.BoolVar(&off, "off", false, "no longer")
	cmd.MarkFlagsMutuallyExclusive("off", "below")
	return cmd
}
