package admin

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
)

func adminGangs(s *base.Session) *cobra.Command {
	var days int
	cmd := &cobra.Command{
		Use:     "gangs",
		Short:   "Strikes by host, pairs kept apart, relief by cluster, starts, and unbilled time by renter and operator",
		Args:    base.Exactly(),
		Example: "  muster admin gangs --days 7\n  muster admin held-credits",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if days < 1 {
				return fault.New(fault.Invalid, "--days: want 1 to 366")
			}
			g, err := s.Client(cmd).Admin.GetGangs(cmd.Context(), client.GangsQuery{Days: days})
			return s.Result(cmd, g, err, func(p *base.Printer) { printGangs(p, g) })
		},
	}
	cmd.Flags().IntVar(&days, "days", 30, "how far back strikes, relief and unbilled time go, 1 to 366")
	return cmd
}

func printGangs(p *base.Printer, g client.Gangs) {
	seconds := func(ms int64) string { return fmt.Sprintf("%.1f", (time.Duration(ms) * time.Millisecond).Seconds()) }
	section := func(heads []string, rows [][]string, none string) {
		if len(rows) == 0 {
			p.Line("%s", none)
		} else {
			p.Table(heads, rows)
		}
		p.Line("")
	}
	var rows [][]string
	for _, x := range g.Strikes {
		against := ""
		if !x.AgainstOrg.IsZero() {
			against = x.AgainstOrg.String()
		}
		rows = append(rows, []string{x.HostName, x.Host.String(), x.Org.String(), x.Kind, base.OrDash(against),
			fmt.Sprint(x.Strikes), base.When(x.LastAt)})
	}
	section([]string{"HOST", "ID", "OPERATOR", "STRIKES FOR", "AGAINST", ">STRIKES", "LAST"}, rows, "No strikes.")
	rows = nil
	for _, x := range g.PairBans {
		rows = append(rows, []string{x.AName, x.A, x.BName, x.B, base.When(x.Until)})
	}
	section([]string{"KEPT APART", "ID", "FROM", "ID", "UNTIL"}, rows, "No pair is kept apart.")
	rows = nil
	for _, x := range g.Relief {
		rows = append(rows, []string{x.Cluster.String(), x.Name, x.Org.String(), seconds(x.Millis), base.Nano(x.Relief),
			base.Nano(x.UsageFee)})
	}
	section([]string{"CLUSTER", "NAME", "RENTER", ">STANDBY S", ">RELIEF", ">FEE"}, rows, "No relief was paid.")
	rows = nil
	for _, x := range g.Renters {
		rows = append(rows, []string{x.Name, x.Org.String(), fmt.Sprint(x.Clusters), fmt.Sprint(x.Suspensions),
			seconds(x.Millis), seconds(x.UndecidedMS)})
	}
	section([]string{"RENTER", "ID", ">CLUSTERS", ">SUSPENSIONS", ">NOT BILLED S", ">UNDECIDED S"}, rows,
		"All time of renters was billed.")
	rows = nil
	for _, x := range g.Starts {
		rows = append(rows, []string{x.Name, x.Org.String(), fmt.Sprint(x.Starts), seconds(x.HeldMS), seconds(x.CountMS),
			base.Nano(x.Value), base.When(x.LastAt)})
	}
	section([]string{"STARTS OF", "ID", ">STARTS", ">GPU-S HELD", ">COUNTED", ">WORTH", "LAST"}, rows,
		"No start held GPUs.")
	rows = nil
	for _, x := range g.Operators {
		rows = append(rows, []string{x.Name, x.Org.String(), fmt.Sprint(x.Clusters), fmt.Sprint(x.Suspensions),
			seconds(x.Millis)})
	}
	section([]string{"OPERATOR TO BLAME", "ID", ">CLUSTERS", ">SUSPENSIONS", ">NOT BILLED S"}, rows,
		"No operator is to blame for unbilled time.")
}
