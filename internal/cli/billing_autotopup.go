package cli

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

func billingAuto(s *shell) *cobra.Command {
	var below, amount, dailyCap string
	var off bool
	cmd := &cobra.Command{
		Use: "auto-topup", Short: "Set up automatic top-ups; without flags, show them", Args: exactly(),
		Example: "  muster billing auto-topup --below 20 --amount 50 --daily-cap 200\n  muster billing auto-topup --off",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := s.client(cmd)
			var a client.AutoTopUp
			var err error
			switch {
			case off:
				a, err = c.SetAutoTopUp(cmd.Context(), client.AutoTopUp{})
			case below+amount+dailyCap == "":
				a, err = c.AutoTopUp(cmd.Context())
			default:
				want := client.AutoTopUp{Enabled: true}
				for _, f := range []struct {
					flag, text string
					to         *money.Nano
				}{{"--below", below, &want.Threshold}, {"--amount", amount, &want.Amount},
					{"--daily-cap", dailyCap, &want.DailyCap}} {
					if *f.to, err = money.ParseNano(f.text); err != nil {
						return fault.New(fault.Invalid, "%s: %s", f.flag, err)
					}
				}
				a, err = c.SetAutoTopUp(cmd.Context(), want)
			}
			return s.result(cmd, a, err, func(p *printer) {
				switch {
				case a.Enabled:
					p.line("When less than %s is available, %s is added, at most %s in 24 hours.", nano(a.Threshold), nano(a.Amount),
						nano(a.DailyCap))
				case a.Stopped != "":
					p.line("Off: it was switched off by itself. %s", a.Stopped)
				default:
					p.line("Off.")
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
