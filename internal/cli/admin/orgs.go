package admin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/account"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func reasonFlag(cmd *cobra.Command, reason *string, who string) {
	cmd.Flags().StringVar(reason, "reason", "", "why; "+who)
}

func wantReason(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return fault.New(fault.Invalid, "--reason is missing: the audit trail keeps it")
	}
	return nil
}

// orgFlag parses an organisation's id; "" is none.
func orgFlag(s string) (id.Org, error) {
	var org id.Org
	if err := org.UnmarshalText([]byte(s)); err != nil {
		return org, fault.New(fault.Invalid, "want the id of an organisation, not %q; see muster admin orgs", s)
	}
	return org, nil
}

func orgArg(s string) (id.Org, error) {
	org, err := orgFlag(s)
	if err == nil && org.IsZero() {
		err = fault.New(fault.Invalid, "ORG must be the ID of an organisation: see muster admin orgs")
	}
	return org, err
}

func adminTodo(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "todo", Aliases: []string{"attention"}, Short: "Show what needs an admin now", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := s.Client(cmd).Admin.GetAttention(cmd.Context())
			return s.Result(cmd, a, err, func(p *base.Printer) {
				var rows [][]string
				for _, r := range []struct {
					n         int64
					what, cmd string
				}{
					{a.PayoutFailures, "operators whose last payout failed", "muster admin payouts due"},
					{a.PayoutsStopped, "operators to whom payouts are stopped", "muster admin payouts due"},
					{a.Reviews, "reviews to decide on, " + base.Nano(a.InReview) + " " + a.Currency, "muster admin reviews --waiting"},
					{a.Disputes, "open disputes, " + base.Nano(a.Disputed) + " " + a.Currency, "muster admin orgs"},
					{a.InvoicesUnpaid, "invoices that no card pays", "muster admin postpaid list"},
					{a.Frozen, "frozen leases", "muster admin frozen"},
					{a.Quarantined, "segments refused within a day", "muster admin quarantine"},
					{a.OutboxUnknown, "Stripe requests with an unknown outcome", "muster admin suspense"},
					{a.MailFailed, "mails given up within a week", "the server's log"},
					{a.DeadLetters, "rows that a background job cannot process", "muster admin dead-letters"},
				} {
					if r.n > 0 {
						rows = append(rows, []string{fmt.Sprint(r.n), r.what, r.cmd})
					}
				}
				if len(rows) == 0 {
					p.Line("Nothing needs you now.")
					return
				}
				p.Table([]string{">HOW MANY", "WHAT", "SEE"}, rows)
			})
		},
	}
}

func adminTotals(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "totals", Short: "Show the fleet and the demand of the last two weeks", Args: base.Exactly(),
		Example: "  muster admin totals",
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := s.Client(cmd).Admin.GetPlatformTotals(cmd.Context())
			return s.Result(cmd, n, err, func(p *base.Printer) {
				p.Facts("Hosts", fmt.Sprintf("%d, %d connected", n.Hosts, n.HostsConnected),
					"GPUs", fmt.Sprintf("%d, %d rented", n.GPUs, n.GPUsRented),
					"Clusters", fmt.Sprintf("%d running, %d starting", n.ClustersRunning, n.ClustersStarting))
				p.Table([]string{"DEMAND", ">LAST 7 DAYS", ">7 DAYS BEFORE"}, [][]string{
					{"sign-ups", fmt.Sprint(n.SignUps), fmt.Sprint(n.SignUpsBefore)},
					{"clusters rented", fmt.Sprint(n.Rents), fmt.Sprint(n.RentsBefore)},
					{"of these failed", fmt.Sprint(n.Failed), fmt.Sprint(n.FailedBefore)},
				})
			})
		},
	}
}

func adminOrgs(s *base.Session) *cobra.Command {
	var page base.PageFlags
	var operators bool
	cmd := &cobra.Command{
		Use:     "orgs [WORDS]",
		Example: "  muster admin orgs ada@example.com\n  muster admin orgs --operators",
		Short:   "Search organisations by id, name or e-mail address, newest first",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			list := s.Client(cmd).Admin.ListOrgs
			if operators {
				list = s.Client(cmd).Admin.ListOperators
			}
			all, err := list(cmd.Context(), client.OrgsQuery{PageOf: page.Of(), Q: strings.Join(args, " ")})
			return s.Result(cmd, all, err, func(p *base.Printer) {
				rows := make([][]string, len(all.Items))
				for i, o := range all.Items {
					rows[i] = []string{o.Name, o.Email, fmt.Sprint(o.Hosts), fmt.Sprint(o.Clusters), base.Nano(o.Available),
						base.Nano(o.Pending), base.Nano(o.Payable), o.ID.String()}
				}
				p.List("organisations",
					[]string{"NAME", "E-MAIL", ">HOSTS", ">CLUSTERS", ">AVAILABLE", ">PENDING", ">PAYABLE", "ID"}, rows)
				base.PrintNext(p, all.Next)
			})
		},
	}
	page.Flags(cmd, "organisations")
	cmd.Flags().BoolVar(&operators, "operators", false, "only those with hosts or a payout account")
	return cmd
}

func adminOrg(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "org ORG", Short: "Show an organisation (-o json: with hosts, clusters and disputes)", Args: base.Exactly("ORG"),
		Example: "  muster admin org org_…",
		RunE: func(cmd *cobra.Command, args []string) error {
			org, err := orgArg(args[0])
			if err != nil {
				return err
			}
			o, err := s.Client(cmd).Admin.GetOrg(cmd.Context(), org)
			if err != nil {
				return err
			}
			return s.Show(cmd, o, func(p *base.Printer) {
				in := " " + o.Currency
				p.Facts("Organisation", o.Name, "Id", o.ID.String(), "Legal name", o.LegalName, "Since", base.When(o.CreatedAt),
					"Available", base.Nano(o.Available)+in, "Held", base.Nano(o.Held)+in, "In the holdback",
					base.Nano(o.Earnings.Pending)+in,
					"In review", base.Nano(o.Earnings.InReview)+in, "Disputed", base.Nano(o.Earnings.Disputed)+in, "Payable",
					base.Nano(o.Earnings.Payable)+in,
					"On its way", base.Nano(o.Earnings.Sending)+in, "Paid", base.Nano(o.Earnings.Paid)+in, "Fee", feeWords(o.FeePPM),
					"Payout account", string(o.Account.State), "Stopped", o.Account.Stopped,
					"Next payout", base.WhenPtr(o.Account.NextAt),
					"Hosts", fmt.Sprint(o.Hosts), "Clusters", fmt.Sprint(o.Clusters))
				p.Line("")
				rows := make([][]string, len(o.Members))
				for i, m := range o.Members {
					verified := "not verified"
					if m.Verified {
						verified = "verified"
					}
					rows[i] = []string{m.Email, m.Role, verified}
				}
				p.Table([]string{"MEMBER", "ROLE", "E-MAIL"}, rows)
			})
		},
	}
}

func adminSet(s *base.Session) *cobra.Command {
	var fee int
	var stop, resume bool
	var reason string
	cmd := &cobra.Command{
		Use: "set ORG",
		Example: "  muster admin set org_… --fee-ppm 100000 --reason 'contract 2026-17'\n" +
			"  muster admin set org_… --stop-payouts --reason 'under investigation'",
		Short: "Set an operator's fee, or stop or resume their payouts; they see the reason",
		Args:  base.Exactly("ORG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			org, err := orgArg(args[0])
			if err != nil {
				return err
			}
			in := client.ChangeOperatorRequest{Reason: reason}
			if cmd.Flags().Changed("fee-ppm") {
				in.FeePPM = &fee
			}
			switch {
			case stop && resume:
				return fault.New(fault.Invalid, "--stop-payouts and --resume-payouts exclude each other")
			case stop || resume:
				in.PayoutsStopped = &stop
			case in.FeePPM == nil:
				return fault.New(fault.Invalid, "say what to change: --fee-ppm, --stop-payouts or --resume-payouts")
			}
			if err := wantReason(reason); err != nil {
				return err
			}
			c := s.Client(cmd)
			if _, err := c.Admin.ChangeOperator(cmd.Context(), org, in); err != nil {
				return err
			}
			o, err := c.Admin.GetOrg(cmd.Context(), org)
			if err != nil {
				return err
			}
			return s.Show(cmd, o, func(p *base.Printer) {
				p.Facts("Organisation", o.Name, "Fee", feeWords(o.FeePPM), "Payouts stopped", o.Account.Stopped)
			})
		},
	}
	cmd.Flags().IntVar(&fee, "fee-ppm", 0, "the platform's part of what new leases earn, in millionths")
	cmd.Flags().BoolVar(&stop, "stop-payouts", false, "stop payouts")
	cmd.Flags().BoolVar(&resume, "resume-payouts", false, "let payouts go on")
	reasonFlag(cmd, &reason, "the operator reads it")
	return cmd
}

func adminAudit(s *base.Session) *cobra.Command {
	var page base.PageFlags
	var action, org string
	cmd := &cobra.Command{
		Use:     "audit [WORDS]",
		Example: "  muster admin audit ada@example.com\n  muster admin audit --action payout.stop",
		Short:   "Search the audit log by an object's id, an e-mail address or words, newest first",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, err := orgFlag(org)
			if err != nil {
				return err
			}
			all, err := s.Client(cmd).Admin.SearchAudit(cmd.Context(), client.AllAuditQuery{
				PageOf: page.Of(),
				Q:      strings.Join(args, " "),
				Action: action,
				Org:    of.String(),
			})
			if err != nil {
				return err
			}
			return s.Show(cmd, all, func(p *base.Printer) { account.PrintAudit(p, all) })
		},
	}
	page.Flags(cmd, "acts")
	cmd.Flags().StringVar(&action, "action", "", "a word such as payout.stop, or its noun: payout")
	cmd.Flags().StringVar(&org, "org", "", "what this organisation did, and what was done to it (its id)")
	return cmd
}

// feeWords formats a fee in percent and as --fee-ppm takes it.
func feeWords(ppm int) string {
	return fmt.Sprintf("%g %% of new leases (%d ppm)", float64(ppm)/10_000, ppm)
}
