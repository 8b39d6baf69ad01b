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
	s.Argument("BUDGET", base.Names(s, func(c *client.Client) base.Lister[client.Budget] {
		return base.Unpaged(c.Budgets.List)
	}, func(b client.Budget) []string {
		return []string{base.Described(b.ID.String(), base.FirstOf(b.Project, "organisation"))}
	}))
	return base.Noun("budget", "Limit what your organisation and its projects spend", budgetSet(s), budgetList(s),
		budgetRemove(s))
}

func budgetSet(s *base.Session) *cobra.Command {
	var project, limit, price string
	var longest time.Duration
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Set the organisation's budget, or a project's",
		Long: `Set the most that may be spent in total, and the highest price and the longest duration of one
cluster. Clusters run only on money that is set aside for them, so a cap is never exceeded. A cluster that reaches it is
shut down cleanly, with the reason budget_exhausted.`,
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
			b := client.SetBudgetRequest{Project: project}
			if limit != "" {
				n, err := money.ParseNano(limit)
				if err != nil {
					return fault.InvalidField("cap", "%s", err)
				}
				b.Cap = new(n.String())
			}
			if price != "" {
				n, err := money.ParseMicro(price)
				if err != nil {
					return fault.InvalidField("max-price", "%s", err)
				}
				b.MaxPrice = new(n.String())
			}
			if longest != 0 {
				n := int64(longest / time.Second)
				b.MaxDuration = &n
			}
			set, err := s.Client(cmd).Budgets.Set(cmd.Context(), b)
			return s.Result(cmd, set, err, func(p *base.Printer) { p.Table(budgetHeads, [][]string{budgetRow(set)}) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&project, "project", "", "set the budget of this project (default: of the organisation)")
	f.StringVar(&limit, "cap", "", "the most that may be spent or held in total")
	f.StringVar(&price, "max-price", "", "highest price per hour of one cluster")
	f.DurationVar(&longest, "max-duration", 0, "longest duration of one cluster, such as 12h")
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
			all, err := s.Client(cmd).Budgets.List(cmd.Context())
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
		Short:   "Delete a budget; a new one counts from zero",
		Args:    base.Exactly("BUDGET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := id.Parse[id.Budget](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "%q is not the id of a budget (bud_…); muster budget list lists them", args[0])
			}
			if err := s.Client(cmd).Budgets.Remove(cmd.Context(), b); err != nil {
				return err
			}
			return s.Show(cmd, map[string]string{"removed": b.String()}, func(p *base.Printer) { p.Line("%s is deleted.", b) })
		},
	}
}
