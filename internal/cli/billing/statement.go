package billing

import (
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

// period is the flags that say of which days a statement is.
type period struct {
	month, from, to, by string
	csv                 bool
}

func (f *period) flags(cmd *cobra.Command, by string) {
	cmd.Flags().StringVar(&f.month, "month", "", "a calendar month, such as 2026-11 (default: this one, up to today)")
	cmd.Flags().StringVar(&f.from, "from", "", "first day, such as 2026-11-03, in your organisation's zone")
	cmd.Flags().StringVar(&f.to, "to", "", "last day")
	cmd.Flags().StringVar(&f.by, "by", "", "what to sum by: "+by)
	cmd.Flags().BoolVar(&f.csv, "csv", false, "every line, as CSV")
}

// of is the statement that the flags ask for.
func (f *period) of() (client.StatementQuery, error) {
	s := client.StatementQuery{StatementDays: client.StatementDays{From: f.from, To: f.to}, By: f.by}
	if f.csv && f.by != "" {
		return s, fault.New(fault.Invalid, "--by sums, and --csv has every line: take one of them")
	}
	if f.month == "" {
		return s, nil
	}
	first, err := time.Parse("2006-01", f.month)
	if err != nil || f.from != "" || f.to != "" {
		return s, fault.New(fault.Invalid, "--month is a month such as 2026-11, and takes the place of --from and --to")
	}
	s.From, s.To = first.Format(time.DateOnly), first.AddDate(0, 1, -1).Format(time.DateOnly)
	return s, nil
}

// StatementCommand is muster statement.
func StatementCommand(s *base.Session) *cobra.Command {
	var f period
	cmd := &cobra.Command{
		Use:   "statement",
		Short: "Show what you were billed",
		Args:  base.Exactly(),
		Long: `What your organisation was billed over some days, by cluster, day, project, person, lease or
label:KEY. Each line behind it is proven by segments that a host has signed: see muster billing verify.`,
		Example: "  muster statement --month 2026-11 --by project\n  muster statement --from 2026-11-03 --to 2026-11-09 " +
			"--csv > november.csv",
		RunE: func(cmd *cobra.Command, _ []string) error {
			of, err := f.of()
			if err != nil {
				return err
			}
			c := s.Client(cmd)
			if f.csv {
				r, err := c.Billing.GetStatementCSV(cmd.Context(), of.StatementDays)
				return Pass(cmd, r, err)
			}
			v, err := c.Billing.GetStatement(cmd.Context(), of)
			return s.Result(cmd, v, err, func(p *base.Printer) {
				p.Line("%s to %s (%s), %s, by %s", v.From, v.To, v.Zone, v.Currency, v.By)
				var rows [][]string
				for _, g := range v.Groups {
					rows = append(rows, []string{g.Name, g.Seconds.String(), g.EnergyWh, g.GBHours, g.Cost.String()})
				}
				rows = append(rows, []string{"Total", "", v.EnergyWh, "", v.Total.String()})
				if v.Credited != 0 {
					rows = append(rows, []string{"Credits", "", "", "", (-v.Credited).String()},
						[]string{"Net", "", "", "", v.Net.String()})
				}
				p.Table([]string{"FOR", ">LEASE SECONDS", ">ENERGY WH", ">GB-HOURS", ">COST"}, rows)
				for _, x := range v.NotBilled {
					p.Line("%s, %s: %s s not billed: %s.", base.When(x.From), x.ClusterName, x.Seconds, x.Why)
				}
			})
		},
	}
	f.flags(cmd, "cluster, day, project, person, lease or label:KEY (default: cluster)")
	return cmd
}

// Pass prints an answer as it is.
func Pass(cmd *cobra.Command, r io.ReadCloser, err error) error {
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(cmd.OutOrStdout(), r)
	return err
}

// HostStatement is muster host statement.
func HostStatement(s *base.Session) *cobra.Command {
	var f period
	cmd := &cobra.Command{
		Use:   "statement [HOST]",
		Short: "Show what your hosts, or one of them, earned: billed, fee, returned, in the holdback",
		Args:  base.AtMost("HOST"),
		Example: "  muster host statement --month 2026-11\n  muster host statement rack-7-a --by day\n  muster host " +
			"statement --month 2026-11 --csv > november.csv",
		RunE: func(cmd *cobra.Command, args []string) error {
			days, err := f.of()
			if err != nil {
				return err
			}
			of := client.EarningsQuery{EarningsDays: client.EarningsDays{From: days.From, To: days.To}, By: days.By}
			c := s.Client(cmd)
			if len(args) == 1 {
				host, err := base.FindHost(cmd.Context(), c, args[0])
				if err != nil {
					return err
				}
				of.Host = host.String()
			}
			if f.csv {
				r, err := c.Earnings.GetStatementCSV(cmd.Context(), of.EarningsDays)
				return Pass(cmd, r, err)
			}
			v, err := c.Earnings.GetStatement(cmd.Context(), of)
			return s.Result(cmd, v, err, func(p *base.Printer) { printEarnings(p, v) })
		},
	}
	f.flags(cmd, "host, day or lease (default: host)")
	return cmd
}

func printEarnings(p *base.Printer, v client.EarningsStatement) {
	p.Line("%s to %s (%s), %s, by %s", v.From, v.To, v.Zone, v.Currency, v.By)
	var rows [][]string
	for _, g := range v.Groups {
		rows = append(rows, []string{g.Name, g.Seconds.String(), g.Billed.String(), g.Fee.String(), g.Earned.String()})
	}
	rows = append(rows, []string{"Total", "", v.Billed.String(), v.Fee.String(), v.Earned.String()})
	p.Table([]string{"FOR", ">LEASE SECONDS", ">BILLED", ">FEE", ">EARNED"}, rows)
	if len(v.Returns) > 0 {
		rows = nil
		for _, r := range v.Returns {
			rows = append(rows, []string{base.When(r.At), r.Kind, r.Why, r.Amount.String()})
		}
		p.Line("")
		p.Table([]string{"WHEN", "RETURNED", "WHY", ">AMOUNT"}, rows)
		p.Line("Earned less what was returned: %s.", v.Net)
	}
	if len(v.Standby) > 0 {
		rows = nil
		for _, x := range v.Standby {
			rows = append(rows, []string{base.When(x.At), x.Kind, x.Why, x.Cluster, x.Amount.String()})
		}
		p.Line("")
		p.Table([]string{"WHEN", "STANDBY", "WHY", "CLUSTER", ">AMOUNT"}, rows)
		p.Line("Received for standing by: %s. Paid from your bond: %s. Neither is part of the sums above.", v.StandbyReceived,
			v.BondPaid)
	}
	var held, notYet money.Nano
	for _, l := range v.Leases {
		held, notYet = held+l.InHoldback, notYet+l.NotBooked
	}
	if notYet > 0 {
		p.Line("Of what these leases earned, %s is measured and not booked yet: it is every quarter of an hour, and "+
			"payouts count it from then on.", notYet)
	}
	if held > 0 {
		p.Line("Of what these leases earned, %s is in the holdback of %s.", held, base.Seconds(v.Holdback))
	}
	if slices.ContainsFunc(v.Leases, func(l client.EarningsLease) bool { return l.Frozen }) {
		p.Line("A host signed two accounts of the same time: nothing becomes payable until an administrator has looked.")
	}
}
