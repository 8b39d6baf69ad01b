package billing

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// BudgetCommand is muster budget.
func BudgetCommand(s *base.Session) *cobra.Command {
	return base.Noun("budget", "What your organisation and its projects may spend", budgetSet(s), budgetList(s),
		budgetRemove(s))
}

func budgetSet(s *base.Session) *cobra.Command {
	var project, limit, price string
	var longest time.Duration
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Set the organisation's budget, or a project's",
		Long: `Set what may be spent in all, and the dearest and longest cluster. Time is paid ahead against held
money, so a cap is never exceeded. Clusters that would are stopped in order, with the reason budget_exhausted.`,
		Example: "  muster budget set --cap 500\n  muster budget set --project vision --cap 120 --max-price 20 " +
			"--max-duration 12h",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if _, err := money.ParseNano(args[0]); err == nil {
					return fault.New(fault.Invalid, "muster budget set takes the limit as a flag: muster budget set --cap %s",
						args[0])
				}
			}
			return base.Exactly()(cmd, args)
		},
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
			set, err := s.Client(cmd).SetBudget(cmd.Context(), b)
			return s.Result(cmd, set, err, func(p *base.Printer) { p.Table(budgetHeads, [][]string{budgetRow(set)}) })
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
	row := []string{b.ID.String(), b.Project, base.Nano(b.Spent), base.Nano(b.Committed - b.Spent), "none", "", "any",
		"any"}
	if b.Project == "" {
		row[1] = "(organisation)"
	}
	if b.Cap != nil {
		row[4], row[5] = base.Nano(*b.Cap), base.Nano(*b.Left)
	}
	if b.MaxPrice != nil {
		row[6] = base.Micro(*b.MaxPrice)
	}
	if b.MaxDuration != nil {
		row[7] = base.Seconds(*b.MaxDuration)
	}
	return row
}

func budgetList(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List budgets and what is left of them", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := s.Client(cmd).Budgets(cmd.Context())
			if err != nil {
				return err
			}
			return s.Show(cmd, all.Items, func(p *base.Printer) {
				rows := make([][]string, len(all.Items))
				for i, b := range all.Items {
					rows[i] = budgetRow(b)
				}
				p.TableOr("No budgets. Set one: muster budget set --cap 500", budgetHeads, rows)
			})
		},
	}
}

func budgetRemove(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:     "remove BUDGET",
		Example: "  muster budget remove bud_…",
		Short:   "Delete a budget; one that is set again counts from then on",
		Args:    base.Exactly("BUDGET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := id.Parse[id.Budget](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "want the id of a budget, bud_…; see muster budget list")
			}
			if err := s.Client(cmd).RemoveBudget(cmd.Context(), b); err != nil {
				return err
			}
			return s.Show(cmd, map[string]string{"removed": b.String()}, func(p *base.Printer) { p.Line("%s is removed.", b) })
		},
	}
}
