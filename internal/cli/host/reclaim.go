package host

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

func hostReclaim(s *base.Session) *cobra.Command {
	var notice string
	var yes bool
	cmd := onHost(s, "reclaim", "Take your machine back: nothing new is rented, and what runs ends after a notice, or "+
		"at once", nil)
	cmd.Long = `Take your machine back: nothing new is rented on it, its renters are notified of the end, and then
it ends. With less than an hour of notice they get back what their last hour cost, from your earnings; the command says
how much and asks. Until then muster host resume takes it back.`
	cmd.Example = "  muster host reclaim attic --notice 2h\n  muster host reclaim attic --notice 0 --yes"
	cmd.Flags().StringVar(&notice, "notice", "2h", "how long what runs goes on: 90m, 12h, or 0 for at once")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		seconds, err := base.ParseSeconds(notice)
		if err != nil {
			return fault.New(fault.Invalid, "--notice: %s", err)
		}
		c := s.Client(cmd)
		h, err := base.FindHost(cmd.Context(), c, args[0])
		if err != nil {
			return err
		}
		f, err := c.Hosts.ForecastReclaim(cmd.Context(), h)
		if err != nil {
			return err
		}
		if seconds < f.Free && f.Leases > 0 && !yes {
			if err := confirmReclaim(cmd, f); err != nil {
				return err
			}
		}
		v, err := c.Hosts.Act(cmd.Context(), h, client.ActOnHostRequest{Action: "reclaim", Notice: seconds})
		return s.Result(cmd, v, err, func(p *base.Printer) {
			p.Line("%s takes nothing new; what runs ends at %s.", v.Name, base.WhenPtr(v.ReclaimAt))
			p.Line("Keep it going after all: muster host resume %s", v.Name)
		})
	}
	return cmd
}

// confirmReclaim says what it costs and asks.
func confirmReclaim(cmd *cobra.Command, f client.ReclaimForecast) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "Leases that run here: %d. Their renters would get %s %s back, %s of it from your "+
		"earnings, and more for what runs on until then.\n"+
		"With an hour of notice or more it costs nothing. Go on? [y/N] ", f.Leases, f.Credit, f.Currency, f.HostPart)
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') // its end is no
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return fault.New(fault.Conflict, "nothing was changed; --yes goes on without asking")
	}
	return nil
}
