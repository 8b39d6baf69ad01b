package admin

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/cli/billing"
	"github.com/musterhq/muster/internal/fault"
)

const periodHelp = "PERIOD is a year, quarter, month or day in UTC, such as 2026, 2026-Q1, 2026-11 or 2026-11-05."

// daysOf returns the first and the last day of a period.
func daysOf(period string) (from, to string, err error) {
	months := 12
	year, rest, more := strings.Cut(period, "-")
	quarter, isQuarter := strings.CutPrefix(rest, "Q")
	first, err := time.Parse("2006", year)
	switch {
	case err != nil || !more:
	case isQuarter:
		months = 3
		var n int
		if n, err = strconv.Atoi(quarter); err == nil && (n < 1 || n > 4) {
			err = strconv.ErrRange
		}
		first = first.AddDate(0, 3*(n-1), 0)
	case strings.Contains(rest, "-"):
		if first, err = time.Parse(time.DateOnly, period); err == nil {
			return period, period, nil
		}
	default:
		months = 1
		first, err = time.Parse("2006-01", period)
	}
	if err != nil {
		return "", "", fault.New(fault.Invalid, "PERIOD: want a year, quarter, month or day, such as 2026, 2026-Q1, "+
			"2026-11 or 2026-11-05")
	}
	return first.Format(time.DateOnly), first.AddDate(0, months, -1).Format(time.DateOnly), nil
}

func adminJournal(s *base.Session) *cobra.Command {
	var kind, after string
	var csv bool
	var limit int
	cmd := &cobra.Command{
		Use:   "journal PERIOD",
		Short: "List the ledger's entries of a period, in their order",
		Args:  base.Exactly("PERIOD"),
		Long: `List the entries of a period, or write all of them as CSV, a line for each transfer. An entry belongs
to the day on which it entered the chain, a minute or so after it was booked. ` + periodHelp,
		Example: "  muster admin journal 2026-11 --csv > november.csv\n  muster admin journal 2026-11 --kind payout_paid",
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to, err := daysOf(args[0])
			if err != nil {
				return err
			}
			entries := client.JournalFilter{LedgerDays: client.LedgerDays{From: from, To: to}, Kind: kind}
			if csv {
				r, err := s.Client(cmd).Ledger.GetJournalCSV(cmd.Context(), entries)
				return billing.Pass(cmd, r, err)
			}
			page, err := s.Client(cmd).Ledger.ListJournal(cmd.Context(), client.JournalQuery{
				PageOf: client.PageOf{Limit: limit, After: after}, JournalFilter: entries,
			})
			return s.Result(cmd, page, err, func(p *base.Printer) {
				var rows [][]string
				for _, e := range page.Items {
					for _, t := range e.Transfers {
						rows = append(rows, []string{e.Day, e.Kind, accountOf(t.Debit, t.DebitOrg), accountOf(t.Credit, t.CreditOrg),
							t.Amount.String(), e.Ref})
					}
				}
				p.List("entries", []string{"DAY", "KIND", "DEBIT", "CREDIT", ">AMOUNT", "OF"}, rows)
				base.PrintNext(p, page.Next)
			})
		},
	}
	cmd.Flags().BoolVar(&csv, "csv", false, "all entries, as CSV")
	cmd.Flags().StringVar(&kind, "kind", "", "entries of this kind only, such as payout_paid")
	cmd.Flags().IntVar(&limit, "limit", 50, "entries at most")
	cmd.Flags().StringVar(&after, "after", "", "continue after this item, which the page before named")
	return cmd
}

func adminBalances(s *base.Session) *cobra.Command {
	var at, after string
	var csv, orgs bool
	var limit int
	cmd := &cobra.Command{
		Use:   "balances [PERIOD]",
		Short: "Show the ledger's balances of a period, or at the end of a day",
		Args:  base.AtMost("PERIOD"),
		Long: `Show the opening and closing balance of each kind of account in a period, and its debits and credits.
With --at, show the balances at the end of a day. With --orgs, show each organisation: what it has paid in and not
used (deferred revenue), what it owes, and what it is owed as an operator. ` + periodHelp,
		Example: "  muster admin balances 2026-11\n  muster admin balances --at 2026-11-30 --orgs --csv > orgs.csv",
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to := at, at
			switch {
			case orgs && len(args) == 1, len(args) == 1 && at != "":
				return fault.New(fault.Invalid, "give a period, or --at with the day at whose end the balances are shown")
			case len(args) == 1:
				var err error
				if from, to, err = daysOf(args[0]); err != nil {
					return err
				}
			case at == "":
				from = time.Now().UTC().Format(time.DateOnly)
				to = from
			}
			c := s.Client(cmd)
			switch {
			case orgs && csv:
				r, err := c.Ledger.GetOrgLedgerCSV(cmd.Context(), client.LedgerDay{At: at})
				return billing.Pass(cmd, r, err)
			case orgs:
				page, err := c.Ledger.ListOrgLedger(cmd.Context(), client.OrgMoneyQuery{
					PageOf: client.PageOf{Limit: limit, After: after}, LedgerDay: client.LedgerDay{At: at},
				})
				return s.Result(cmd, page, err, func(p *base.Printer) { printOrgMoney(p, page) })
			case csv:
				r, err := c.Ledger.GetBalancesCSV(cmd.Context(), client.LedgerDays{From: from, To: to})
				return billing.Pass(cmd, r, err)
			}
			b, err := c.Ledger.GetReport(cmd.Context(), client.LedgerDays{From: from, To: to})
			return s.Result(cmd, b, err, func(p *base.Printer) { printBalances(p, b) })
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "the day, in UTC, such as 2026-11-30 (default: today)")
	cmd.Flags().BoolVar(&csv, "csv", false, "as CSV")
	cmd.Flags().BoolVar(&orgs, "orgs", false, "by organisation")
	cmd.Flags().IntVar(&limit, "limit", 50, "organisations at most")
	cmd.Flags().StringVar(&after, "after", "", "continue after this organisation, which the page before named")
	return cmd
}

func printOrgMoney(p *base.Printer, page client.Page[client.OrgMoney]) {
	var rows [][]string
	for _, o := range page.Items {
		rows = append(rows, []string{o.Org.String(), o.Name, base.Nano(o.Deferred), base.Nano(o.Receivable),
			base.Nano(o.Payable)})
	}
	p.List("organisations", []string{"ORGANISATION", "NAME", ">DEFERRED", ">OWES", ">IS OWED"}, rows)
	base.PrintNext(p, page.Next)
}

func printBalances(p *base.Printer, b client.LedgerReport) {
	p.Line("%s to %s (UTC)", b.From, b.To)
	var rows [][]string
	for _, a := range b.Accounts {
		rows = append(rows, []string{a.Kind, a.Currency, a.Opening, a.Debits, a.Credits, a.Closing})
	}
	p.List("entries", []string{"ACCOUNTS", "CURRENCY", ">OPENING", ">DEBITS", ">CREDITS", ">CLOSING"}, rows)
}

func adminReport(s *base.Session) *cobra.Command {
	var csv string
	cmd := &cobra.Command{
		Use:   "report PERIOD",
		Short: "Show what was sold in a period, and what moved by kind of entry",
		Args:  base.Exactly("PERIOD"),
		Long: `Show what was sold in a period, by kind of entry: the turnover with renters, what of it hosts earned, and
the platform's fee. Below that, all that moved by month and kind: payouts, refunds, disputes, promo codes, Stripe's
fees. ` + periodHelp,
		Example: "  muster admin report 2026-11\n  muster admin report 2026 --csv flows > 2026.csv",
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to, err := daysOf(args[0])
			if err != nil {
				return err
			}
			c, days := s.Client(cmd), client.LedgerDays{From: from, To: to}
			switch csv {
			case "":
			case "turnover":
				r, err := c.Ledger.GetTurnoverCSV(cmd.Context(), days)
				return billing.Pass(cmd, r, err)
			case "flows":
				r, err := c.Ledger.GetFlowsCSV(cmd.Context(), days)
				return billing.Pass(cmd, r, err)
			default:
				return fault.New(fault.Invalid, "--csv: want turnover or flows")
			}
			b, err := c.Ledger.GetReport(cmd.Context(), days)
			return s.Result(cmd, b, err, func(p *base.Printer) { printReport(p, b) })
		},
	}
	cmd.Flags().StringVar(&csv, "csv", "", "one table as CSV: turnover or flows")
	return cmd
}

func printReport(p *base.Printer, b client.LedgerReport) {
	p.Line("%s to %s (UTC)", b.From, b.To)
	var rows [][]string
	for _, l := range b.Turnover {
		rows = append(rows, []string{l.Kind, l.Currency, l.Renters, l.Bonds, l.Relief, l.Hosts, l.Fees})
	}
	p.List("sales", []string{"SOLD", "CURRENCY", ">RENTERS", ">BONDS", ">RELIEF", ">HOSTS", ">FEES"}, rows)
	rows = nil
	for _, f := range b.Flows {
		rows = append(rows, []string{f.Month, f.Kind, f.Debit, f.Credit, strconv.FormatInt(f.Transfers, 10), f.Amount})
	}
	p.List("entries", []string{"MONTH", "KIND", "DEBIT", "CREDIT", ">TRANSFERS", ">AMOUNT"}, rows)
}
