// Package admin holds the commands of muster admin, for the staff of the platform.
package admin

import (
	"fmt"
	"math/big"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/cli/billing"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Command is muster admin. The command muster server admin makes a user a member of the staff.
func Command(s *base.Session) *cobra.Command {
	cmd := base.Noun("admin", "Administer the platform: ledger, organisations, payouts", adminLedger(s),
		adminSearch(s), adminCompensate(s), adminSuspense(s), adminDeadLetters(s), adminStore(s),
		adminQuarantine(s), adminFrozen(s), adminUnfreeze(s), adminGangs(s), adminHeldCredits(s), adminDecideCredit(s),
		adminPromo(s), adminPostpaid(s), adminReviews(s), adminStandings(s), adminForgive(s), adminAllowRefund(s),
		adminContestedGPUs(s), adminAwardGPU(s), adminTax(s), adminRemitTax(s),
		adminJournal(s), adminBalances(s), adminReport(s), adminEntry(s),
		billing.AllDocuments(s),
		adminTodo(s), adminTotals(s), adminOrgs(s), adminOrg(s), adminSet(s), adminPayouts(s), adminSending(s),
		adminSecret(s), adminAudit(s),
		adminAgents(s), adminChannel(s), adminFloors(s),
		adminDecide(s, "release", "Let what is in review become payable as usual",
			func(c *client.Client) decideReview { return c.Admin.ReleasePayoutReview }),
		adminDecide(s, "refuse", "Keep what is in review from the operator for good; they read the reason",
			func(c *client.Client) decideReview { return c.Admin.RefusePayoutReview }))
	cmd.Long = `These commands are for the platform's staff. muster server admin EMAIL makes a user a member of the
staff. Their account page can then create a token with the scope admin for muster login.`
	cmd.Example = "  muster admin books\n  muster admin search cl_…\n  muster admin compensate ltx_… --amount 1.50 " +
		"--reason 'an outage of ours'"
	return cmd
}

func adminLedger(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "books", Short: "Check that the ledger balances", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := s.Client(cmd).Ledger.Get(cmd.Context())
			if err != nil {
				return err
			}
			if err := s.Show(cmd, b, func(p *base.Printer) { printTrialBalance(p, b) }); err != nil {
				return err
			}
			if !b.Balanced {
				return fault.New(fault.Conflict, "the ledger does not balance")
			}
			return nil
		},
	}
}

func printTrialBalance(p *base.Printer, b client.TrialBalance) {
	p.Facts("Debits", wholeNano(b.Debits), "Credits", wholeNano(b.Credits))
	var rows [][]string
	for _, a := range b.Accounts {
		rows = append(rows, []string{a.Kind, a.Currency, wholeNano(a.Nano)})
	}
	p.Table([]string{"ACCOUNTS", "CURRENCY", ">BALANCE"}, rows)
	for _, x := range b.Problems {
		p.Line("PROBLEM: %s", x)
	}
	if b.Balanced {
		p.Line("The ledger balances.")
	}
}

// wholeNano formats an integer of nano-units of any size as a decimal.
func wholeNano(s string) string {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return s
	}
	sign := ""
	if n.Sign() < 0 {
		sign = "-"
	}
	whole, rest := new(big.Int).QuoRem(n.Abs(n), big.NewInt(int64(money.Unit)), new(big.Int))
	return fmt.Sprintf("%s%s.%09d", sign, whole, rest)
}

func adminSearch(s *base.Session) *cobra.Command {
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "search TEXT", Short: "Search ledger entries by id, key or object, newest first", Args: base.Exactly("TEXT"),
		Long: "Find entries by their id or key, or by the id of the organisation, cluster, top-up or refund they belong to.",
		RunE: func(cmd *cobra.Command, args []string) error {
			page, err := s.Client(cmd).Ledger.Search(cmd.Context(), client.LedgerQuery{PageOf: client.PageOf{Limit: limit,
				After: after}, Q: args[0]})
			return s.Result(cmd, page, err, func(p *base.Printer) {
				for _, e := range page.Items {
					printEntry(p, e)
				}
				p.Line("%d entries.", len(page.Items))
				base.PrintNext(p, page.Next)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "entries at most")
	cmd.Flags().StringVar(&after, "after", "", "continue after this item, which the page before named")
	return cmd
}

func printEntry(p *base.Printer, e client.LedgerEntry) {
	p.Facts("Entry", e.ID, "When", e.At, "Kind", e.Kind, "Key", e.Key, "For", e.Memo, "Of", e.Ref, "Corrects", e.Corrects)
	for _, t := range e.Transfers {
		p.Line("  %s %s  from %s to %s", t.Amount, t.Currency, accountOf(t.Debit, t.DebitOrg),
			accountOf(t.Credit, t.CreditOrg))
	}
	p.Line("")
}

func accountOf(kind, org string) string {
	if org == "" {
		return kind
	}
	return kind + " of " + org
}

func adminCompensate(s *base.Session) *cobra.Command {
	var amount, reason string
	cmd := &cobra.Command{
		Use:   "compensate CHARGE",
		Short: "Give a charge back to its renter, in part or whole",
		Args:  base.Exactly("CHARGE"),
		Example: "  muster admin compensate ltx_… --reason 'an outage of ours'\n  muster admin compensate ltx_… --amount " +
			"1.50 --reason 'half of it'",
		RunE: func(cmd *cobra.Command, args []string) error {
			charge, err := id.Parse[id.LedgerTx](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "CHARGE: want the id of an entry; see muster admin search")
			}
			if reason == "" {
				return fault.New(fault.Invalid, "--reason is missing: renter and operator read it")
			}
			if amount != "" {
				n, err := money.ParseNano(amount)
				if err != nil {
					return fault.New(fault.Invalid, "--amount: %s", err)
				}
				if n <= 0 {
					return fault.New(fault.Invalid, "--amount is above zero; left out, it is all that is left of the charge")
				}
			}
			e, err := s.Client(cmd).Ledger.CompensateCharge(cmd.Context(), charge,
				client.CompensateChargeRequest{Amount: amount, Reason: reason})
			return s.Result(cmd, e, err, func(p *base.Printer) { printEntry(p, e) })
		},
	}
	cmd.Flags().StringVar(&amount, "amount", "", "a decimal (default: all that is left of the charge)")
	cmd.Flags().StringVar(&reason, "reason", "", "why; both sides read it")
	return cmd
}

func adminSuspense(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use: "suspense", Short: "Compare Stripe's balance with the ledger: mismatches and suspense", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := s.Client(cmd).Admin.GetReconciliation(cmd.Context())
			return s.Result(cmd, r, err, func(p *base.Printer) {
				p.Facts("Stripe holds", base.Nano(r.Stripe)+" "+r.Currency, "The ledger has", base.Nano(r.Clearing)+" "+r.Currency,
					"Difference", base.Nano(r.Difference),
					"Matched", fmt.Sprint(r.Matched), "Waiting", fmt.Sprint(r.Waiting), "In suspense", fmt.Sprint(r.Suspense))
				if f := r.Funds; f != nil {
					p.Facts("Stripe's balance", base.Nano(f.Available)+" available, "+base.Nano(f.Pending)+" pending",
						"Reserved there",
						base.Nano(f.Reserved),
						"Less the ledger", base.Nano(f.Unbooked), "Not explained", base.Nano(f.Unread), "Asked at", base.When(f.ReadAt))
					if f.Wrong {
						p.Line("Stripe's balance is not what its changes come to, since %s.", base.When(*f.OffSince))
					}
				}
				var rows [][]string
				for _, x := range r.Open {
					rows = append(rows, []string{base.When(x.At), x.State, x.Type, base.Nano(x.Amount), x.ID + " " + x.Source})
				}
				for _, x := range r.Unproven {
					rows = append(rows, []string{base.When(x.At), "not at Stripe", x.Kind, base.Nano(x.Amount), x.Key})
				}
				if len(rows) > 0 {
					p.Table([]string{"WHEN", "STATE", "WHAT", ">AMOUNT", "NAME"}, rows)
				}
			})
		},
	}
}

func adminQuarantine(s *base.Session) *cobra.Command {
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "quarantine", Short: "List usage segments that were refused, newest first", Args: base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.Client(cmd).Admin.ListQuarantine(cmd.Context(), client.PageOf{Limit: limit, After: after})
			return s.Result(cmd, page, err, func(p *base.Printer) {
				rows := make([][]string, len(page.Items))
				for i, r := range page.Items {
					rows[i] = []string{base.When(r.At), r.Host.String(), r.Lease, fmt.Sprint(r.Seq), r.Reason, r.Why}
				}
				p.Table([]string{"WHEN", "HOST", "LEASE", ">SEGMENT", "REASON", "IT"}, rows)
				base.PrintNext(p, page.Next)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "segments at most")
	cmd.Flags().StringVar(&after, "after", "", "continue after this item, which the page before named")
	return cmd
}

func adminFrozen(s *base.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "frozen",
		Short: "List leases whose money is frozen because their host signed two accounts of the same time",
		Args:  base.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := s.Client(cmd).Admin.ListFrozenLeases(cmd.Context())
			return s.Result(cmd, page, err, func(p *base.Printer) {
				for _, f := range page.Items {
					p.Facts("Lease", f.Lease.String(), "Cluster", fmt.Sprintf("%s, rank %d", f.Cluster, f.Rank), "Host",
						f.HostName+" "+f.Host.String(),
						"Renter", f.Renter.String(), "Operator", f.Operator.String(), "Charged", base.Nano(f.Posted)+" "+f.Currency,
						"Waiting",
						base.Nano(f.Waiting)+" "+f.Currency)
					for _, x := range f.Conflicts {
						p.Line("  Segment %d of start %d: %s to %s stands; %s to %s came at %s.", x.Seq, x.Epoch, base.When(x.From),
							base.When(x.To), base.When(x.OtherFrom), base.When(x.OtherTo), base.When(x.At))
					}
					p.Line("")
				}
				p.Line("Frozen: %s.", base.Counted(len(page.Items), "lease"))
			})
		},
	}
}

func adminUnfreeze(s *base.Session) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:     "unfreeze LEASE",
		Example: "  muster admin unfreeze ls_… --reason 'restored from a backup'",
		Short:   "Unfreeze the money of a lease; the account that was signed first stands",
		Args:    base.Exactly("LEASE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := id.Parse[id.Lease](args[0])
			if err != nil {
				return fault.New(fault.Invalid, "LEASE: want the id of a lease; see muster admin frozen")
			}
			if reason == "" {
				return fault.New(fault.Invalid, "--reason is missing: the host's operator reads it")
			}
			_, err = s.Client(cmd).Admin.UnfreezeLease(cmd.Context(), l, client.UnfreezeLeaseRequest{Reason: reason})
			return s.Result(cmd, map[string]string{"unfrozen": l.String()}, err,
				func(p *base.Printer) { p.Line("Money for %s moves again.", l) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; the host's operator reads it")
	return cmd
}
