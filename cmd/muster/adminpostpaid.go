package main

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func adminPostpaid(s *shell) *cobra.Command {
	cmd := noun("postpaid", "Organisations that pay afterwards, up to a credit limit", adminPostpaidList(s), adminPostpaidOn(s), adminPostpaidOff(s))
	cmd.Example = "  muster admin postpaid on org_… --limit 500 --reason 'contract 2026-17'\n  muster admin postpaid list\n  muster admin postpaid off org_… --reason 'contract ended'"
	return cmd
}

func adminPostpaidList(s *shell) *cobra.Command {
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "Who pays afterwards or did, and what of their limits is used", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.client(cmd)
			if err != nil {
				return err
			}
			page, err := c.PostpaidOrgs(cmd.Context(), client.PageOf{Limit: limit, After: after})
			if err != nil {
				return err
			}
			return s.show(cmd, page, func(p *printer) {
				rows := make([][]string, len(page.Items))
				for i, t := range page.Items {
					state := t.State
					if t.Stopped != "" {
						state += ", stopped: " + t.Stopped
					}
					rows[i] = []string{t.Org.String(), t.Name, nano(t.Limit) + " " + t.Currency, nano(t.Used), nano(t.Owed), whenPtr(t.Since), state}
				}
				p.table([]string{"ORGANISATION", "NAME", ">LIMIT", ">USED", ">BILLED, UNPAID", "CHANGED", "STATE"}, rows)
				printNext(p, page.Next)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "organisations at most")
	cmd.Flags().StringVar(&after, "after", "", "next of the page before")
	return cmd
}

func adminPostpaidOn(s *shell) *cobra.Command {
	var limit, reason string
	cmd := &cobra.Command{
		Use: "on ORG", Short: "Let an organisation pay afterwards, or change its limit; it reads the reason", Args: exactly("ORG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := money.ParseNano(limit); err != nil {
				return fault.New(fault.Invalid, "--limit: %s", err)
			}
			return changePostpaid(s, cmd, args[0], client.PostpaidChange{On: true, Limit: limit, Reason: reason})
		},
	}
	cmd.Flags().StringVar(&limit, "limit", "", "what it may use and owe at most")
	cmd.Flags().StringVar(&reason, "reason", "", "why; the organisation reads it, and the audit trail keeps it")
	return cmd
}

func adminPostpaidOff(s *shell) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "off ORG", Short: "Have an organisation pay ahead again; what it used is billed", Args: exactly("ORG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changePostpaid(s, cmd, args[0], client.PostpaidChange{Reason: reason})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; the organisation reads it, and the audit trail keeps it")
	return cmd
}

func changePostpaid(s *shell, cmd *cobra.Command, of string, change client.PostpaidChange) error {
	org, err := id.Parse[id.Org](of)
	if err != nil {
		return fault.New(fault.Invalid, "ORG: want the id of an organisation")
	}
	if change.Reason == "" {
		return fault.New(fault.Invalid, "--reason is missing: the organisation reads it, and the audit trail keeps it")
	}
	c, err := s.client(cmd)
	if err != nil {
		return err
	}
	t, err := c.ChangePostpaid(cmd.Context(), org, change)
	if err != nil {
		return err
	}
	return s.show(cmd, t, func(p *printer) { printPostpaid(p, t) })
}

func printPostpaid(p *printer, t client.Postpaid) {
	switch {
	case t.State == "off":
		p.line("Off: it pays ahead, with credit that was added.")
		return
	case t.State == "ending":
		p.line("Ending: nothing more is lent, and what was used is billed.")
	case t.Stopped != "":
		p.line("On, and nothing more is lent: %s", t.Stopped)
	default:
		p.line("On.")
	}
	in := " " + t.Currency
	if t.Period != nil {
		p.facts("Period", when(t.Period.Start)+" to "+when(t.Period.End), "Billed in it", nano(t.Period.Charged)+" "+t.Currency, "Used since", nano(t.Period.Unbilled)+" "+t.Currency)
	}
	p.facts("Credit limit", nano(t.Limit)+in, "Used of it", nano(t.Used)+in, "Billed, unpaid", nano(t.Owed)+in, "Can be spent", nano(t.Left)+in)
}
