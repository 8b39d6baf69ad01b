package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func budgetCommand(s *shell) *cobra.Command {
	return noun("budget", "What your organisation and its projects may spend", budgetSet(s), budgetList(s),
		budgetRemove(s))
}

func budgetSet(s *shell) *cobra.Command {
	var project, limit, price string
	var longest time.Duration
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Set the organisation's budget, or a project's",
		Long: `Set what may be spent in all, and the dearest and longest cluster. Time is paid ahead against held
money, so a cap is never exceeded. Clusters that would are stopped in order, with the reason budget_exhausted.`,
		Example: "  muster budget set --cap 500\n  muster budget set --project vision --cap 120 --max-price 20 " +
			"--max-duration 12h",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := client.NewBudget{Project: project}
			if limit != "" {
				n, err := money.ParseNano(limit)
				if err != nil {
					return fault.InvalidField("cap", "%s", err)
				}
				b.Cap = &n
			}
			if price != "" {
				n, err := money.ParseMicro(price)
				if err != nil {
					return fault.InvalidField("max-price", "%s", err)
				}
				b.MaxPrice = &n
			}
			if longest != 0 {
				n := int64(longest / time.Second)
				b.MaxDuration = &n
			}
			set, err := s.client(cmd).SetBudget(cmd.Context(), b)
			return s.result(cmd, set, err, func(p *printer) { p.table(budgetHeads, [][]string{budgetRow(set)}) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&project, "project", "", "a project's; left out: the whole organisation's")
	f.StringVar(&limit, "cap", "", "what may be spent or held in all")
	f.StringVar(&price, "max-price", "", "per hour, of one cluster")
	f.DurationVar(&longest, "max-duration", 0, "of one cluster, such as 12h")
	return cmd
}

var budgetHeads = []string{"ID", "OF", ">SPENT", ">HELD", ">CAP", ">LEFT", ">MAX PER HOUR", ">MAX DURATION"}

func budgetRow(b client.Budget) []string {
	row := []string{b.ID.String(), b.Project, nano(b.Spent), nano(b.Committed - b.Spent), "none", "", "any", "any"}
	if b.Project == "" {
		row[1] = "(organisation)"
	}
	if b.Cap != nil {
		row[4], row[5] = nano(*b.Cap), nano(*b.Left)
	}
	if b.MaxPrice != nil {
		row[6] = micro(*b.MaxPrice)
	}
	if b.MaxDuration != nil {
		row[7] = (time.Duration(*b.MaxDuration) * time.Second).String()
	}
	return row
}

func budgetList(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List budgets and what is left of them", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.client(cmd).Budgets(cmd.Context())
			if err != nil {
				return err
			}
			return s.show(cmd, all.Items, func(p *printer) {
				rows := make([][]string, len(all.Items))
				for i, b := range all.Items {
					rows[i] = budgetRow(b)
				}
				p.table(budgetHeads, rows)
			})
		},
	}
}

func budgetRemove(s *shell) *cobra.Command {
	return &cobra.Command{
		Use: "remove BUDGET", Short: "Delete a budget; one that is set again counts from then on", Args: exactly("BUDGET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := id.Parse[id.Budget](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "want the id of a budget, bud_…; see muster budget list")
			}
			if err := s.client(cmd).RemoveBudget(cmd.Context(), b); err != nil {
				return err
			}
			return s.show(cmd, map[string]string{"removed": b.String()}, func(p *printer) { p.line("%s is removed.", b) })
		},
	}
}
